// Runs whole jobs through the engine's public face and keeps what came of them.
#ifndef MEGATRAIN_TESTS_ENGINE_NUMERICS_JOB_RUN_H_
#define MEGATRAIN_TESTS_ENGINE_NUMERICS_JOB_RUN_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/engine.h"
#include "engine/job/job_spec.h"
#include "engine/trace/step_record.h"
#include "tests/engine/numerics/model_reference.h"
#include "tests/engine/numerics/preference_reference.h"
#include "tests/support/test_directory.h"

namespace megatrain {

// The job of the reference's loss curves: its recipe, on its tokens.bin, checkpoints beneath
// `directory` at the end only.
JobSpec CurveJob(const ModelReference& reference, Precision precision, bool clipped,
                 const std::string& directory);

// The job of the reference's curves over pairs of answers.
JobSpec PreferenceJob(const PreferenceReference& reference, Precision precision, bool clipped,
                      const std::string& directory);

struct JobRun {
  absl::Status status;
  TrainingOutcome outcome = TrainingOutcome::kFinished;
  std::vector<StepRecord> records;
  std::vector<std::string> messages;

  LossCurve curve() const;
};

// Trains. `stop_after` > 0 asks for a stop while that step's record is delivered.
JobRun Train(const JobSpec& spec, int64_t stop_after = 0);

// The same on a host that is there; its device and the job's must go together.
JobRun TrainOnHost(EngineHost& host, const JobSpec& spec, int64_t stop_after = 0,
                   CommunicatorSet* processes = nullptr, TrainingOptions options = {});

// The same by several processes of a job, which here are threads with a host each: process i has
// specs[i], and options[i] if there are any. The first one is asked for the stop. `machines` names
// the machine of each; empty: all are on one.
std::vector<JobRun> TrainInProcesses(const std::vector<JobSpec>& specs, int64_t stop_after = 0,
                                     const std::vector<TrainingOptions>& options = {},
                                     const std::vector<std::string>& machines = {});

// The path of the newest checkpoint in the job's directory; "" if there is none.
std::string NewestCheckpoint(const JobSpec& spec);
// The tensor files of the newest checkpoint in the job's directory, whole, by file name: weights,
// remainders and moments; none if there is no checkpoint.
std::map<std::string, std::string> CheckpointTensorFiles(const JobSpec& spec);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_NUMERICS_JOB_RUN_H_
