// Dataset is a job's training and evaluation data as sequences.
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_DATASET_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_DATASET_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/data/records/bad_records.h"
#include "engine/data/sequences/sequence.h"
#include "engine/job/job_spec.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

// A source of a training mix: an entry of data.train with a weight.
struct MixedSource {
  std::string path;       // as the job gives it
  double share = 0;       // of the sequences of a step, on average
  int64_t sequences = 0;  // for training
  double passes = 0;      // how often an epoch of the mix goes through them
};

// Counts of what was prepared and what was left out.
struct DatasetReport {
  int64_t documents = 0;  // `tokens` format: files
  int64_t tokens = 0;     // without padding
  int64_t sequences = 0;
  int64_t truncated_examples = 0;       // cut to the length of a sequence; of pairs, to half of it
  int64_t dropped_tokens = 0;           // `tokens` format: less than a sequence at the end
  int64_t examples_without_target = 0;  // left out: no prediction to learn from (packing.h)
  // Turns of the assistant without loss, because their place in the rendered text is uncertain.
  int64_t turns_without_loss = 0;
  BadRecords bad_records;
  std::vector<MixedSource> mix;  // empty without weights
};

// Evaluation sequences [begin, end) of the files of data.eval with one name.
struct EvalSet {
  std::string name;  // empty: of files without a name, or split off the training data
  int64_t begin = 0, end = 0;
};

// The job's tokenized and packed sequences, numbered in file order, those of data.eval set by set.
// Memory use hardly grows with the data, because token ids stay on disk. TrainSequence and
// EvalSequence return OutOfRange for an index that does not exist, and the errors of reading.
//
// Thread safety: const methods may be called from several threads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t train_sequences() const = 0;
  virtual int64_t eval_sequences() const = 0;
  // Returns the parts of the evaluation sequences, in their order. Empty if there are none.
  virtual std::vector<EvalSet> eval_sets() const = 0;
  // Returns the number of positions of the training order that an epoch takes. It is
  // train_sequences(), or in a mix the length of the shortest beginning of the order in which every
  // sequence of every source occurs.
  virtual int64_t epoch_sequences() const { return train_sequences(); }
  virtual absl::StatusOr<Sequence> TrainSequence(int64_t index) const = 0;
  virtual absl::StatusOr<Sequence> EvalSequence(int64_t index) const = 0;
  // Returns the index for TrainSequence at `position` (from 0) of the training order, which
  // continues through the epochs. Takes constant time. In a mix the position decides the source
  // (engine/data/order/source_mix.h), and each source is gone through again and again. With
  // data.shuffle the order is a new one each time. REQUIRES: position >= 0, and train_sequences()
  // > 0.
  virtual int64_t TrainingOrder(int64_t position) const = 0;
  // Return the counts of the training and of the evaluation data, valid as long as this object. If
  // evaluation sequences are split off the training data, only `sequences` is counted for each, and
  // the other counts of both are in train_report().
  virtual const DatasetReport& train_report() const = 0;
  virtual const DatasetReport& eval_report() const = 0;
  // Returns the XXH3-128 (32 hex digits) of the files' contents and all settings that affect the
  // sequences and their order. A job resumes only from a checkpoint with the same fingerprint.
  virtual std::string fingerprint() const = 0;
  // Returns the day that the chat template saw, as data.template_date writes it ("2026-01-31"), or
  // "" if no text depends on the day.
  virtual std::string template_date() const = 0;
  // Returns the Jinja program that the job names for its chat data, or "" if it is the model
  // directory's own or no data is chats.
  virtual std::string own_chat_template() const { return ""; }
};

// Called often while data is prepared, by the thread that called OpenDataset, with the bytes of the
// data files that are ready and those of all. If it returns an error, such as Cancelled,
// OpenDataset stops and returns that error.
using DataProgress = std::function<absl::Status(int64_t bytes_done, int64_t bytes_total)>;

// Reads the files of `spec`, tokenizes them or finds the result in the cache, and packs it into
// sequences. With `verify_data` every data file is hashed and the cache is checked whole; else
// files that look unchanged are taken for what they were (FileHashes), and the cache is checked as
// it is read. Paths in `spec` must be absolute, and all or none of data.train have weights.
// data.train may be empty if data.eval is not; the dataset then has no training sequences. An empty
// data.template_date means today's. `tokenizer` may be null if all files have format `tokens`.
// `cache_directory` is used if the spec names none. `progress` may be null. `files` must outlive
// the dataset.
//
// Returns InvalidArgument, naming the file and the place in it, for malformed data that
// data.on_bad_record does not skip, and for an id that is not below `model_vocabulary`. Returns
// InvalidArgument also for impossible settings of the data, if the training data, an entry of a mix
// or an EvalSet makes no sequence, and if data.eval_fraction leaves none (in a mix, none of an
// entry) to train on. Returns the errors of ExpandDataFile, PrepareEncoder, FileSystem::Examine,
// DataSide::Open and `progress`.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(
    const JobSpec& spec, std::shared_ptr<const Tokenizer> tokenizer,
    const std::string& model_directory, int64_t model_vocabulary,
    const std::string& cache_directory, const DataProgress& progress,
    FileSystem* files = PosixFileSystem(), bool verify_data = false);

// Returns the position of the training order at which a run that is given in epochs ends, which is
// ceil(epochs * epoch_sequences), where a product that is off a whole number by no more than
// rounding counts as that. Returns 0 if `training.steps` is given or no epochs are.
int64_t EpochPositions(const JobSpec& spec, int64_t epoch_sequences);

// Returns the number of steps that the spec asks for: `training.steps` if given, else
// ceil(EpochPositions / global_batch). Returns InvalidArgument if the spec gives neither, if
// global_batch is below 1, or if the quotient, rounded up, is below 1 or not below 9e15.
absl::StatusOr<int64_t> TotalSteps(const JobSpec& spec, int64_t epoch_sequences);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_DATASET_H_
