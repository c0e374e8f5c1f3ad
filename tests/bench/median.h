#ifndef MEGATRAIN_TESTS_BENCH_MEDIAN_H_
#define MEGATRAIN_TESTS_BENCH_MEDIAN_H_

#include <algorithm>
#include <vector>

namespace megatrain {

// Returns the upper of the two middle values where their number is even. REQUIRES: `values` is not
// empty.
inline double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<long>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_BENCH_MEDIAN_H_
