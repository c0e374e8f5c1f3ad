// The table that a benchmark prints: what was measured beside what must be reached.
#ifndef MEGATRAIN_TESTS_BENCH_DAEMON_REPORT_H_
#define MEGATRAIN_TESTS_BENCH_DAEMON_REPORT_H_

#include <string>
#include <vector>

namespace megatrain {

class Report {
 public:
  // Rows with a bound. `unit` follows both numbers.
  void AtLeast(const std::string& what, double measured, double bound, const std::string& unit);
  void AtMost(const std::string& what, double measured, double bound, const std::string& unit);
  // A count that must be what it is.
  void Exactly(const std::string& what, int64_t measured, int64_t expected);
  // Rows that only tell.
  void Note(const std::string& what, const std::string& measured);

  void Print() const;
  // Every bound is met.
  bool Met() const;

 private:
  struct Row {
    std::string what, bound, measured;
    bool met = true;
  };
  std::vector<Row> rows_;
};

// The value that a share `q` of `values` does not exceed; 0 if there are none.
double Quantile(std::vector<double> values, double q);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_BENCH_DAEMON_REPORT_H_
