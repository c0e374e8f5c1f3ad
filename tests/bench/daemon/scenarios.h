// What daemon_bench measures. Each scenario starts daemons of its own and adds its rows to a
// report; an error means that it could not be measured to its end.
#ifndef MEGATRAIN_TESTS_BENCH_DAEMON_SCENARIOS_H_
#define MEGATRAIN_TESTS_BENCH_DAEMON_SCENARIOS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "tests/bench/daemon/report.h"

namespace megatrain {

struct BenchOptions {
  std::string binary;  // megatraind
  uint32_t seed = 1;
  int rounds = 6;                     // requests: with load and without, by turns
  double round_seconds = 20;          // requests
  std::string preset = "llama-124m";  // requests: what trains while it is measured
  int repeats = 20;                   // control: pauses and cancels
  int streams = 500;
  double stream_seconds = 600;
  double stream_link = 0.1;  // GB/s of the job that is streamed, which sets its steps' pace
  int kills = 100;
};

// Unary calls beside training: how many are answered and how fast, what they cost training, and the
// daemon's memory.
absl::Status MeasureRequests(const BenchOptions& options, Report* report);
// How soon pause, resume and cancel take effect, and how soon the next job starts.
absl::Status MeasureControl(const BenchOptions& options, Report* report);
// Readers of step metrics, all at once and for long.
absl::Status MeasureStreams(const BenchOptions& options, Report* report);
// A daemon that is killed again and again while jobs are submitted and followed.
absl::Status MeasureKills(const BenchOptions& options, Report* report);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_BENCH_DAEMON_SCENARIOS_H_
