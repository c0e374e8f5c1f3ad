// A daemon that is killed at random moments, again and again, while jobs are submitted, paused,
// resumed and followed; then everything it acknowledged is looked for.
#ifndef MEGATRAIN_TESTS_BENCH_DAEMON_KILL_RUN_H_
#define MEGATRAIN_TESTS_BENCH_DAEMON_KILL_RUN_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "tests/e2e/workplace.h"

namespace megatrain {

struct KillRunOptions {
  uint32_t seed = 1;
  int kills = 100;
  JobShape shape;             // of all jobs, which differ in their seeds
  double life_seconds = 2.5;  // a daemon is killed at most this long after it was ready
};

struct KillRunResult {
  int jobs = 0;
  int kills_before_ready = 0;
  int64_t events = 0;
  int64_t records = 0;  // of steps, those repeated included
  // In what state jobs were killed: how often.
  std::map<std::string, int> killed;
};

// An error says what was lost, or differs from a run that nothing disturbed: a job, an event that
// was told, a step's record, a bit of the exported weights.
absl::StatusOr<KillRunResult> RunKills(const Workplace& place, const KillRunOptions& options);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_BENCH_DAEMON_KILL_RUN_H_
