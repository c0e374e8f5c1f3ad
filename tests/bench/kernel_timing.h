// What the benchmarks of kernels share: operands, checks, and the clock that their command line
// names.
#ifndef MEGATRAIN_TESTS_BENCH_KERNEL_TIMING_H_
#define MEGATRAIN_TESTS_BENCH_KERNEL_TIMING_H_

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/dtype.h"
#include "engine/device/device.h"
#include "tests/bench/median.h"

namespace megatrain {

// The cpu device's kernels need no stream.
class NoStream : public Stream {};

// Ends the program with the error, if there is one.
inline void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

// Returns `n` values in [-1, 1), packed as `dtype`, the same in every call.
inline std::vector<char> RandomValues(DType dtype, int64_t n) {
  std::vector<char> bytes(static_cast<size_t>(n * DTypeBytes(dtype)));
  std::minstd_rand random(1);
  for (int64_t i = 0; i < n; ++i) {
    const float value = static_cast<float>(random() % 2000) * 1e-3f - 1.0f;
    const bf16_t rounded = FloatToBf16(value);
    if (dtype == DType::kF32) {
      std::memcpy(&bytes[static_cast<size_t>(4 * i)], &value, 4);
    } else {
      std::memcpy(&bytes[static_cast<size_t>(2 * i)], &rounded, 2);
    }
  }
  return bytes;
}

// The arguments [THREADS] [ROUNDS] [wall|cpu].
struct TimingArguments {
  int threads = 2;
  int rounds = 5;
  clockid_t clock = CLOCK_MONOTONIC;
};
inline TimingArguments ReadTimingArguments(int argc, char** argv) {
  TimingArguments arguments;
  if (argc > 1) arguments.threads = std::atoi(argv[1]);
  if (argc > 2) arguments.rounds = std::max(1, std::atoi(argv[2]));
  const bool cpu = argc > 3 && std::string(argv[3]) == "cpu";
  if (cpu && arguments.threads == 1) arguments.clock = CLOCK_PROCESS_CPUTIME_ID;
  return arguments;
}

// Times calls by the clock and the rounds of the command line.
class Stopwatch {
 public:
  Stopwatch(clockid_t clock, int rounds) : clock_(clock), rounds_(rounds) {}

  // Returns the seconds of one call, whose error ends the program.
  double Seconds(const std::function<absl::Status()>& call) const {
    const double start = Now();
    Check(call());
    return Now() - start;
  }
  // Returns the median of the rounds, which follow a call that does not count.
  double MedianSeconds(const std::function<absl::Status()>& call) const {
    Check(call());
    std::vector<double> samples;
    for (int i = 0; i < rounds_; ++i) samples.push_back(Seconds(call));
    return Median(std::move(samples));
  }

 private:
  double Now() const {
    timespec now;
    clock_gettime(clock_, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }

  const clockid_t clock_;
  const int rounds_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_BENCH_KERNEL_TIMING_H_
