// MetricPage writes a page of metrics in Prometheus' text format. A page consists of families, each
// with a name, a type and a help text. A family consists of series, each with a value and a set of
// labels.
//
// Thread safety: one thread at a time.
#ifndef MEGATRAIN_SERVER_METRICS_METRIC_PAGE_H_
#define MEGATRAIN_SERVER_METRICS_METRIC_PAGE_H_

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace megatrain {

// The name and the value of each label. A value may be any text; the page escapes it.
using MetricLabels = std::vector<std::pair<std::string, std::string>>;

class MetricPage {
 public:
  // Adds series to a family. Must not be used once the next family is begun, or after the page's
  // end. Each Add returns this. REQUIRES: the series of a family differ in their labels.
  class Series {
   public:
    explicit Series(prometheus::MetricFamily* family) : family_(family) {}
    // Adds a series to a family of gauges or counters.
    Series& Add(const MetricLabels& labels, double value);
    // Adds a series to a family of histograms. `value` is as prometheus::Histogram::Collect gives
    // it.
    Series& Add(const MetricLabels& labels, prometheus::ClientMetric value);
    // Adds a series without labels.
    Series& Add(double value) { return Add({}, value); }
    // Adds a series without labels, or none for nullopt.
    Series& Add(const std::optional<double>& value) { return value ? Add({}, *value) : *this; }

   private:
    prometheus::MetricFamily* const family_;
  };

  // Begin a family, and return the object that adds its series. REQUIRES: the page has no family of
  // this name.
  Series Gauge(const std::string& name, const std::string& help);
  // REQUIRES: the name ends in _total, as Prometheus wants it.
  Series Counter(const std::string& name, const std::string& help);
  Series Histogram(const std::string& name, const std::string& help);

  // Returns the whole page. A family without series has its HELP and TYPE.
  std::string Text() const;

 private:
  prometheus::MetricFamily* NewFamily(const std::string& name, const std::string& help,
                                      prometheus::MetricType type);

  std::vector<prometheus::MetricFamily> families_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_METRICS_METRIC_PAGE_H_
