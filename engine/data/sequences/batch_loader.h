// BatchLoader supplies a dataset in batches that a thread prepares ahead of training.
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_BATCH_LOADER_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_BATCH_LOADER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "engine/data/cache/reference_logps.h"
#include "engine/data/sequences/batch.h"
#include "engine/data/sequences/dataset.h"
#include "engine/job/job_spec.h"

namespace megatrain {

// Prepares batches in order on a thread of its own. Thread safety: Next may be called from several
// threads.
class BatchLoader {
 public:
  // Starts at step `first_step` (from 1), whose first sequence is that at `first_position` of the
  // training order, in constant time. Queues up to `ahead` finished batches (at least one) and
  // prepares one more meanwhile. The last step of a run that is given in epochs may have fewer
  // sequences. `reference` (null if there is none) gives the log-probabilities of the answers in
  // training sequences, by their index. `reference` and `dataset` must outlive the loader. `spec`
  // is used during the call only. REQUIRES: all parts of `reference` are open, `dataset` has
  // training sequences, and global_batch and micro_batch of `spec` are at least 1.
  BatchLoader(const Dataset* dataset, const JobSpec& spec, int64_t first_step,
              int64_t first_position, int64_t total_steps, int ahead,
              const ReferenceLogps* reference = nullptr);
  // Waits for the batch that is being prepared.
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  // Waits for the next step's batch and returns it. Returns OutOfRange after step `total_steps`,
  // FailedPrecondition if a batch has no prediction to learn from, and otherwise the error of
  // reading. After an error every later call returns the same error.
  absl::StatusOr<std::shared_ptr<const Batch>> Next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_BATCH_LOADER_H_
