// A training run with hooks in its callbacks, so that requests come at known places, and what tests
// of runs expect of it.
#ifndef MEGATRAIN_TESTS_ENGINE_RUN_HOOKED_RUN_H_
#define MEGATRAIN_TESTS_ENGINE_RUN_HOOKED_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/bytes.h"
#include "engine/engine.h"
#include "tests/engine/numerics/job_run.h"

namespace megatrain {

inline constexpr int64_t kHookedSteps = 4;
inline constexpr int64_t kHookedPoolBytes = 64 * kMiB;

struct HookedRun {
  std::function<void(const TrainingActivity&)> activity;
  std::function<void(int64_t first_step)> started;
  std::function<void(int64_t step)> step;
  std::function<void(int64_t step)> before_checkpoint;
  std::function<void(int64_t step)> saved;
  std::function<void(const TrainingPause&)> paused;
  std::function<void()> alive;
  TrainingOptions options;

  TrainingControl control;
  JobRun run;
  std::vector<std::string> events;  // "started 1", "step 1", "paused", "checkpoint 2", ...

  // Trains `spec` on `host` until it ends.
  absl::StatusOr<TrainingOutcome> Train(EngineHost& host, const JobSpec& spec);
};

// Two threads of the cpu device.
std::unique_ptr<EngineHost> Host(FileSystem* files = PosixFileSystem());
// The same, with a pool of kHookedPoolBytes.
std::unique_ptr<EngineHost> HostWithPool(FileSystem* files = PosixFileSystem());

// kHookedSteps steps of a small model, in a directory that is new.
JobSpec HookedJob(const std::string& directory, Precision precision = Precision::kBf16,
                  bool clipped = true);

void ExpectSameRecords(const JobRun& run, const JobRun& expected);
// The last checkpoints' tensors have the same bits.
void ExpectSameFiles(const JobSpec& spec, const JobSpec& expected);
// Nothing is leased of a pool of kHookedPoolBytes.
void ExpectPoolWhole(const EngineHost& host);
bool HasCheckpoint(const JobSpec& spec);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_RUN_HOOKED_RUN_H_
