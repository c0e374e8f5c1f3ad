// Gives the engine its batches in training order, prepared ahead by a thread of its own.
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_BATCH_LOADER_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_BATCH_LOADER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/data/sequences/batch.h"
#include "engine/data/sequences/sequence.h"
#include "engine/job/job_spec.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

// What is reported once about prepared data.
struct DatasetReport {
  int64_t documents = 0;
  int64_t tokens = 0;  // without padding
  int64_t sequences = 0;
  int64_t truncated_examples = 0;  // longer than a sequence
  int64_t dropped_tokens = 0;      // `tokens` format: the remainder
  int64_t examples_without_target = 0;
};

// The job's tokenised, packed sequences, indexed in file order. Memory use does not grow with the
// data: token ids lie in a cache file. Thread safety: const methods may be called
// from several threads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t train_sequences() const = 0;
  virtual int64_t eval_sequences() const = 0;
  virtual absl::StatusOr<Sequence> TrainSequence(int64_t index) const = 0;  // file order
  virtual absl::StatusOr<Sequence> EvalSequence(int64_t index) const = 0;
  // Position -> index of TrainSequence in training order; `position` counts through epochs. O(1).
  virtual int64_t TrainingOrder(int64_t position) const = 0;
  virtual const DatasetReport& train_report() const = 0;
  virtual const DatasetReport& eval_report() const = 0;
  // XXH3-128 in hex over files' contents and everything that decides the sequences and their order:
  // a checkpoint made with other data is refused.
  virtual std::string fingerprint() const = 0;
};

// Called often while data is prepared. Cancelled abandons the preparation and is what it returns.
using DataProgress = std::function<absl::Status(int64_t bytes_done, int64_t bytes_total)>;

// Reads, tokenises (or finds in the cache) and packs. `tokenizer` may be null if every file is
// `tokens`. Paths in `spec` are absolute. `model_vocabulary`: an id at or above it is refused with
// file and offset. `cache_directory` is where tokenised data goes when the spec names none.
// `progress` may be null. `files` must outlive the dataset.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const JobSpec& spec,
                                                     std::shared_ptr<const Tokenizer> tokenizer,
                                                     const std::string& model_directory,
                                                     int64_t model_vocabulary,
                                                     const std::string& cache_directory,
                                                     const DataProgress& progress,
                                                     FileSystem* files = PosixFileSystem());

// Steps that the spec asks for: `training.steps`, or ceil(epochs * n / global_batch).
absl::StatusOr<int64_t> TotalSteps(const JobSpec& spec, int64_t train_sequences);

class BatchLoader {
 public:
  // Starts at step `first_step` (from 1): O(1) wherever that is. Keeps `ahead` batches prepared.
  // The last step of an `epochs` run may be smaller. `dataset` must outlive the loader.
  BatchLoader(const Dataset* dataset, const JobSpec& spec, int64_t first_step, int64_t total_steps,
              int ahead);
  ~BatchLoader();
  BatchLoader(const BatchLoader&) = delete;
  BatchLoader& operator=(const BatchLoader&) = delete;

  // The next step's batch; waits for it. OutOfRange after total_steps. FailedPrecondition if the
  // batch has no unmasked prediction.
  absl::StatusOr<std::shared_ptr<const Batch>> Next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_BATCH_LOADER_H_
