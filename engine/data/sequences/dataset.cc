#include "engine/data/sequences/dataset.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/civil_time.h"
#include "engine/base/status.h"
#include "engine/data/cache/file_hashes.h"
#include "engine/data/order/permutation.h"
#include "engine/data/order/source_mix.h"
#include "engine/data/records/bounded_file_system.h"
#include "engine/data/records/data_file_io.h"
#include "engine/data/sequences/data_side.h"
#include "engine/data/sequences/encoder_setup.h"
#include "engine/job/data_paths.h"

namespace megatrain {
namespace {

// A permutation for each source of a mix: 2^64 / golden ratio keeps the seeds apart.
constexpr uint64_t kSourceSeedStep = 0x9e3779b97f4a7c15u;

// The training data, or an entry of it that has a weight.
struct Source {
  std::unique_ptr<DataSide> side;
  // Its sequences are those for training, then those split off for evaluation.
  int64_t train_count = 0;
  int64_t eval_count = 0;
  // The place of the first of each among all sources'.
  int64_t first_train = 0;
  int64_t first_eval = 0;
};

class PreparedDataset : public Dataset {
 public:
  // The options of the sides point to these four.
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;
  std::unique_ptr<BoundedFileSystem> files;
  std::unique_ptr<FileHashes> hashes;
  std::vector<Source> sources;  // one without weights
  std::optional<SourceMix> mix;
  std::vector<std::unique_ptr<DataSide>> eval;  // by set; empty if split off, or if there is none
  std::vector<EvalSet> eval_set_values;
  int64_t train_count = 0;
  int64_t eval_count = 0;
  int64_t epoch_count = 0;
  bool shuffle = true;
  uint64_t seed = 0;
  DatasetReport train_report_value;
  DatasetReport eval_report_value;
  std::string fingerprint_value;
  std::string template_date_value;

  int64_t train_sequences() const override { return train_count; }
  int64_t eval_sequences() const override { return eval_count; }
  std::vector<EvalSet> eval_sets() const override { return eval_set_values; }
  int64_t epoch_sequences() const override { return epoch_count; }

  absl::StatusOr<Sequence> TrainSequence(int64_t index) const override {
    if (index < 0 || index >= train_count) return OutOfRange("training", index, train_count);
    const Source& source = SourceOf(index, &Source::first_train);
    return source.side->Read(index - source.first_train);
  }

  absl::StatusOr<Sequence> EvalSequence(int64_t index) const override {
    if (index < 0 || index >= eval_count) return OutOfRange("evaluation", index, eval_count);
    if (!eval.empty()) {
      size_t set = 0;
      while (index >= eval_set_values[set].end) ++set;
      return eval[set]->Read(index - eval_set_values[set].begin);
    }
    const Source& source = SourceOf(index, &Source::first_eval);
    return source.side->Read(source.train_count + index - source.first_eval);
  }

  int64_t TrainingOrder(int64_t position) const override {
    SourceMix::Place place = {0, position};
    if (mix.has_value()) place = mix->At(position);
    const Source& source = sources[place.source];
    int64_t inside = place.number % source.train_count;
    if (shuffle) {
      inside = PermutedIndex(seed + place.source * kSourceSeedStep,
                             static_cast<uint64_t>(place.number / source.train_count),
                             source.train_count, inside);
    }
    return source.first_train + inside;
  }

  const DatasetReport& train_report() const override { return train_report_value; }
  const DatasetReport& eval_report() const override { return eval_report_value; }
  std::string fingerprint() const override { return fingerprint_value; }
  std::string template_date() const override { return template_date_value; }
  std::string own_chat_template() const override {
    return chat_template == nullptr ? "" : chat_template->own_program();
  }

 private:
  // The last source whose first is not behind the index.
  const Source& SourceOf(int64_t index, int64_t Source::*first) const {
    return *--std::upper_bound(
        sources.begin(), sources.end(), index,
        [first](int64_t value, const Source& source) { return value < source.*first; });
  }
  static absl::Status OutOfRange(const char* what, int64_t index, int64_t count) {
    return absl::OutOfRangeError(
        absl::StrCat("there is no ", what, " sequence ", index, "; there are ", count));
  }
};

// The end of `epochs` in the training order. A product that is whole but for the rounding of its
// factors, such as 2.2 * 200, is whole.
double EndOfEpochs(double epochs, int64_t epoch_sequences) {
  constexpr double kRounding = 1e-12;
  const double end = epochs * static_cast<double>(epoch_sequences);
  const double whole = std::round(end);
  return std::abs(end - whole) <= kRounding * end ? whole : std::ceil(end);
}

bool IsMix(const JobSpec::Data& data) {
  return !data.train.empty() && data.train.front().weight > 0;
}

absl::Status CheckSpec(const JobSpec::Data& data) {
  if (data.train.empty() && data.eval.empty()) {
    return absl::InvalidArgumentError("data.train: names no file; training data is needed");
  }
  if (data.sequence_length < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "data.sequence_length: is ", data.sequence_length, "; a prediction needs 2 tokens"));
  }
  if (!(data.eval_fraction >= 0) || data.eval_fraction >= 1) {
    return absl::InvalidArgumentError(absl::StrCat("data.eval_fraction: is ", data.eval_fraction,
                                                   "; from 0 to below 1 is possible"));
  }
  if (IsMix(data) && data.train.size() > kMixSourcesMax) {
    return absl::InvalidArgumentError(absl::StrCat("data.train: ", data.train.size(),
                                                   " entries have weights; at most ",
                                                   kMixSourcesMax, " can be mixed"));
  }
  return absl::OkStatus();
}

absl::Status NoSequence(const std::string& key, const DatasetReport& report,
                        int64_t sequence_length) {
  std::string why;
  if (report.documents == 0 && report.bad_records.count > 0) {
    why = absl::StrCat("none of its ", report.bad_records.count,
                       " records can be read: ", report.bad_records.named.front());
  } else if (report.dropped_tokens > 0) {
    why = absl::StrCat(report.dropped_tokens, " tokens are fewer than one sequence of ",
                       sequence_length, "; shorten data.sequence_length");
  } else {
    why = absl::StrCat("none of ", report.documents,
                       " examples has a token that the loss is on within the first ",
                       sequence_length, " tokens");
  }
  return absl::InvalidArgumentError(absl::StrCat(key, ": makes no sequence: ", why));
}

// The files of data.train, for each of the sources, and those of data.eval.
struct DataPaths {
  std::vector<std::vector<DataFile>> train;
  std::vector<DataFile> eval;
};

absl::StatusOr<DataPaths> FindFiles(const JobSpec::Data& data, FileSystem* files) {
  DataPaths paths;
  if (IsMix(data)) {
    for (const DataFile& entry : data.train) {
      MT_ASSIGN_OR_RETURN(paths.train.emplace_back(), ExpandDataFile(entry, files));
    }
  } else if (!data.train.empty()) {
    MT_ASSIGN_OR_RETURN(paths.train.emplace_back(), ExpandDataFiles(data.train, files));
  }
  MT_ASSIGN_OR_RETURN(paths.eval, ExpandDataFiles(data.eval, files));
  return paths;
}

absl::StatusOr<int64_t> TotalBytes(const DataPaths& paths, FileSystem* files) {
  int64_t total = 0;
  for (const std::vector<DataFile>& list : paths.train) {
    for (const DataFile& file : list) {
      MT_ASSIGN_OR_RETURN(const FileInfo info, files->Examine(file.path));
      total += info.bytes;
    }
  }
  for (const DataFile& file : paths.eval) {
    MT_ASSIGN_OR_RETURN(const FileInfo info, files->Examine(file.path));
    total += info.bytes;
  }
  return total;
}

void Add(const DatasetReport& part, DatasetReport* all) {
  all->documents += part.documents;
  all->tokens += part.tokens;
  all->sequences += part.sequences;
  all->truncated_examples += part.truncated_examples;
  all->dropped_tokens += part.dropped_tokens;
  all->examples_without_target += part.examples_without_target;
  all->turns_without_loss += part.turns_without_loss;
  all->bad_records.Add(part.bad_records);
}

// Opens the sources and splits off what is for evaluation if no files are.
absl::Status OpenTraining(const JobSpec::Data& data, const DataPaths& paths,
                          const DataSideOptions& options, const ByteProgress& progress,
                          PreparedDataset& dataset) {
  const double fraction = data.eval.empty() ? data.eval_fraction : 0;
  for (size_t i = 0; i < paths.train.size(); ++i) {
    const std::string name =
        IsMix(data) ? absl::StrCat("data.train: ", data.train[i].path) : std::string("data.train");
    Source& source = dataset.sources.emplace_back();
    MT_ASSIGN_OR_RETURN(source.side, DataSide::Open(paths.train[i], options, progress));
    Add(source.side->report(), &dataset.train_report_value);
    const int64_t sequences = source.side->sequences();
    if (sequences == 0) {
      return NoSequence(name.c_str(), source.side->report(), data.sequence_length);
    }
    source.eval_count = static_cast<int64_t>(std::ceil(fraction * static_cast<double>(sequences)));
    source.train_count = sequences - source.eval_count;
    if (source.train_count <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("data.eval_fraction: ", data.eval_fraction, " of ", sequences, " sequences",
                       IsMix(data) ? absl::StrCat(" of ", data.train[i].path) : "",
                       " leaves none to train on; give more data or shorten "
                       "data.sequence_length"));
    }
    source.first_train = dataset.train_count;
    source.first_eval = dataset.eval_count;
    dataset.train_count += source.train_count;
    dataset.eval_count += source.eval_count;
  }
  dataset.train_report_value.sequences = dataset.train_count;
  dataset.eval_report_value.sequences = dataset.eval_count;
  if (dataset.eval_count > 0) dataset.eval_set_values = {{"", 0, dataset.eval_count}};
  return absl::OkStatus();
}

// Opens data.eval, the files of each name as a set. No sequence holds tokens of two sets.
absl::Status OpenEvalSets(const std::vector<DataFile>& eval, const JobSpec::Data& data,
                          const DataSideOptions& options, const ByteProgress& progress,
                          PreparedDataset& dataset) {
  std::vector<std::pair<std::string, std::vector<DataFile>>> sets;  // in the order of first files
  for (const DataFile& file : eval) {
    auto set = std::find_if(sets.begin(), sets.end(),
                            [&](const auto& one) { return one.first == file.name; });
    if (set == sets.end()) set = sets.insert(sets.end(), {file.name, {}});
    set->second.push_back(file);
  }
  for (const auto& [name, files] : sets) {
    MT_ASSIGN_OR_RETURN(std::unique_ptr<DataSide> side, DataSide::Open(files, options, progress));
    const int64_t sequences = side->sequences();
    if (sequences == 0) {
      return NoSequence(name.empty() ? "data.eval" : absl::StrCat("data.eval, set ", name),
                        side->report(), data.sequence_length);
    }
    Add(side->report(), &dataset.eval_report_value);
    dataset.eval_set_values.push_back({name, dataset.eval_count, dataset.eval_count + sequences});
    dataset.eval_count += sequences;
    dataset.eval.push_back(std::move(side));
  }
  return absl::OkStatus();
}

// Makes the order of a mix, and the length of its epochs.
void MixSources(const JobSpec::Data& data, PreparedDataset& dataset) {
  dataset.epoch_count = dataset.train_count;
  if (!IsMix(data)) return;
  std::vector<double> weights;
  for (const DataFile& entry : data.train) weights.push_back(entry.weight);
  const SourceMix& mix = dataset.mix.emplace(weights);
  dataset.epoch_count = 0;
  for (size_t i = 0; i < dataset.sources.size(); ++i) {
    dataset.epoch_count =
        std::max(dataset.epoch_count, mix.PositionOf(i, dataset.sources[i].train_count - 1) + 1);
  }
  for (size_t i = 0; i < dataset.sources.size(); ++i) {
    MixedSource source;
    source.path = data.train[i].path;
    source.share = static_cast<double>(mix.shares()[i]) / static_cast<double>(mix.period());
    source.sequences = dataset.sources[i].train_count;
    source.passes = source.share * static_cast<double>(dataset.epoch_count) /
                    static_cast<double>(source.sequences);
    dataset.train_report_value.mix.push_back(source);
  }
}

std::string Fingerprint(const JobSpec& spec, const PreparedDataset& dataset) {
  std::string text;
  if (!dataset.mix.has_value()) {
    text = "megatrain data 1\n";
    for (const Source& source : dataset.sources) absl::StrAppend(&text, source.side->key(), "\n");
  } else {
    text = "megatrain mix 1\n";
    for (size_t i = 0; i < dataset.sources.size(); ++i) {
      absl::StrAppend(&text, dataset.mix->shares()[i], " ", dataset.sources[i].train_count, " ",
                      dataset.sources[i].side->key(), "\n");
    }
  }
  absl::StrAppend(
      &text,
      absl::StrJoin(dataset.eval, "\n",
                    [](std::string* out, const std::unique_ptr<DataSide>& side) {
                      absl::StrAppend(out, side->key());
                    }),
      "\n", dataset.train_count, "\n",
      dataset.shuffle ? absl::StrCat("shuffled by ", spec.training.seed) : std::string("in order"));
  return HashText(text);
}

DataSideOptions SideOptions(const JobSpec& spec, int64_t vocabulary) {
  DataSideOptions options;
  const bool pairs = spec.training.objective == Objective::kDpo;
  options.packing = {spec.data.sequence_length, spec.data.packing, pairs};
  options.stream.words.pairs = pairs;
  options.stream.threads = spec.engine.threads > 0
                               ? static_cast<int>(spec.engine.threads)
                               : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  options.stream.words.encoder.vocabulary = vocabulary;
  options.stream.words.encoder.text_piece_bytes =
      std::max(kTextPieceBytesMin, kTextPieceBytes / static_cast<size_t>(options.stream.threads));
  options.stream.words.skip_bad_records = spec.data.on_bad_record == OnBadRecord::kSkip;
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const JobSpec& spec,
                                                     std::shared_ptr<const Tokenizer> tokenizer,
                                                     const std::string& model_directory,
                                                     int64_t model_vocabulary,
                                                     const std::string& cache_directory,
                                                     const DataProgress& progress,
                                                     FileSystem* files, bool verify_data) {
  const JobSpec::Data& data = spec.data;
  MT_RETURN_IF_ERROR(CheckSpec(data));
  MT_ASSIGN_OR_RETURN(const DataPaths paths, FindFiles(data, files));
  auto dataset = std::make_unique<PreparedDataset>();
  dataset->files = std::make_unique<BoundedFileSystem>(files, DescriptorShare());
  DataSideOptions options = SideOptions(spec, model_vocabulary);
  options.pad_id = PadId(tokenizer.get(), model_vocabulary);
  options.stream.cache_directory =
      data.cache_directory.empty() ? cache_directory : data.cache_directory;
  options.stream.files = dataset->files.get();
  options.stream.verify = verify_data;
  dataset->hashes = std::make_unique<FileHashes>(options.stream.cache_directory, verify_data,
                                                 dataset->files.get());
  options.stream.hashes = dataset->hashes.get();
  MT_RETURN_IF_ERROR(PrepareEncoder(data, tokenizer.get(), model_directory, files,
                                    options.stream.words.encoder, dataset->chat_template));
  if (dataset->chat_template != nullptr && dataset->chat_template->uses_day()) {
    dataset->template_date_value = absl::FormatCivilTime(dataset->chat_template->day());
  }

  ByteProgress counted;
  int64_t bytes_done = 0;
  if (progress) {
    MT_ASSIGN_OR_RETURN(const int64_t bytes_total, TotalBytes(paths, files));
    counted = [&progress, &bytes_done, bytes_total](int64_t bytes) {
      bytes_done += bytes;
      return progress(std::min(bytes_done, bytes_total), bytes_total);
    };
  }
  dataset->tokenizer = std::move(tokenizer);
  dataset->shuffle = data.shuffle;
  dataset->seed = spec.training.seed;
  absl::Status opened = OpenTraining(data, paths, options, counted, *dataset);
  if (opened.ok()) opened = OpenEvalSets(paths.eval, data, options, counted, *dataset);
  // A hash that is not remembered costs another reading of its file, and nothing else.
  dataset->hashes->Save().IgnoreError();
  MT_RETURN_IF_ERROR(opened);
  MixSources(data, *dataset);
  dataset->fingerprint_value = Fingerprint(spec, *dataset);
  return dataset;
}

int64_t EpochPositions(const JobSpec& spec, int64_t epoch_sequences) {
  if (spec.training.steps > 0 || !(spec.training.epochs > 0)) return 0;
  return static_cast<int64_t>(EndOfEpochs(spec.training.epochs, epoch_sequences));
}

absl::StatusOr<int64_t> TotalSteps(const JobSpec& spec, int64_t epoch_sequences) {
  const JobSpec::Training& training = spec.training;
  if (training.global_batch <= 0) {
    return absl::InvalidArgumentError("training.global_batch: must be at least 1");
  }
  if (training.steps > 0) return training.steps;
  if (!(training.epochs > 0)) {
    return absl::InvalidArgumentError("training.steps: neither steps nor epochs is given");
  }
  const double steps = std::ceil(EndOfEpochs(training.epochs, epoch_sequences) /
                                 static_cast<double>(training.global_batch));
  if (!(steps >= 1 && steps < 9e15)) {
    return absl::InvalidArgumentError(absl::StrCat("training.epochs: ", training.epochs, " of ",
                                                   epoch_sequences,
                                                   " sequences is no number of "
                                                   "steps"));
  }
  return static_cast<int64_t>(steps);
}

}  // namespace megatrain
