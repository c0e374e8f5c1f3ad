#include "server/metrics/metric_page.h"

#include <prometheus/text_serializer.h>

namespace megatrain {

MetricPage::Series& MetricPage::Series::Add(const MetricLabels& labels, double value) {
  prometheus::ClientMetric metric;
  for (const auto& [name, text] : labels) metric.label.push_back({name, text});
  if (family_->type == prometheus::MetricType::Counter) {
    metric.counter.value = value;
  } else {
    metric.gauge.value = value;
  }
  family_->metric.push_back(std::move(metric));
  return *this;
}

MetricPage::Series& MetricPage::Series::Add(const MetricLabels& labels,
                                            prometheus::ClientMetric value) {
  for (const auto& [name, text] : labels) value.label.push_back({name, text});
  family_->metric.push_back(std::move(value));
  return *this;
}

prometheus::MetricFamily* MetricPage::NewFamily(const std::string& name, const std::string& help,
                                                prometheus::MetricType type) {
  prometheus::MetricFamily& family = families_.emplace_back();
  family.name = name;
  family.help = help;
  family.type = type;
  return &family;
}

MetricPage::Series MetricPage::Gauge(const std::string& name, const std::string& help) {
  return Series(NewFamily(name, help, prometheus::MetricType::Gauge));
}

MetricPage::Series MetricPage::Counter(const std::string& name, const std::string& help) {
  return Series(NewFamily(name, help, prometheus::MetricType::Counter));
}

MetricPage::Series MetricPage::Histogram(const std::string& name, const std::string& help) {
  return Series(NewFamily(name, help, prometheus::MetricType::Histogram));
}

std::string MetricPage::Text() const { return prometheus::TextSerializer().Serialize(families_); }

}  // namespace megatrain
