#include "engine/data/sequences/dataset.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/strings/str_join.h"
#include "engine/base/model_directory_file.h"
#include "engine/base/status.h"
#include "engine/data/records/data_file_io.h"
#include "engine/data/sequences/data_side.h"
#include "engine/data/sequences/permutation.h"

namespace megatrain {
namespace {

class PreparedDataset : public Dataset {
 public:
  // The options of the sides point to these two.
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;
  std::unique_ptr<DataSide> train;
  std::vector<std::unique_ptr<DataSide>> eval;  // by set; empty if split off, or if there is none
  std::vector<EvalSet> eval_set_values;
  int64_t train_count = 0;
  int64_t eval_count = 0;
  bool shuffle = true;
  uint64_t seed = 0;
  DatasetReport train_report_value;
  DatasetReport eval_report_value;
  std::string fingerprint_value;
  std::string template_date_value;

  int64_t train_sequences() const override { return train_count; }
  int64_t eval_sequences() const override { return eval_count; }
  std::vector<EvalSet> eval_sets() const override { return eval_set_values; }

  absl::StatusOr<Sequence> TrainSequence(int64_t index) const override {
    if (index < 0 || index >= train_count) return OutOfRange("training", index, train_count);
    return train->Read(index);
  }

  absl::StatusOr<Sequence> EvalSequence(int64_t index) const override {
    if (index < 0 || index >= eval_count) return OutOfRange("evaluation", index, eval_count);
    if (eval.empty()) return train->Read(train_count + index);
    size_t set = 0;
    while (index >= eval_set_values[set].end) ++set;
    return eval[set]->Read(index - eval_set_values[set].begin);
  }

  int64_t TrainingOrder(int64_t position) const override {
    const int64_t inside = position % train_count;
    if (!shuffle) return inside;
    return PermutedIndex(seed, static_cast<uint64_t>(position / train_count), train_count, inside);
  }

  const DatasetReport& train_report() const override { return train_report_value; }
  const DatasetReport& eval_report() const override { return eval_report_value; }
  std::string fingerprint() const override { return fingerprint_value; }
  std::string template_date() const override { return template_date_value; }

 private:
  static absl::Status OutOfRange(const char* what, int64_t index, int64_t count) {
    return absl::OutOfRangeError(
        absl::StrCat("there is no ", what, " sequence ", index, "; there are ", count));
  }
};

// The first eos_token_id of config.json; -1 if it has none.
absl::StatusOr<int32_t> EosOfConfig(const std::string& model_directory, FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                      ReadModelDirectoryFile(model_directory, "config.json", files));
  const nlohmann::json config =
      nlohmann::json::parse(text.value_or(""), nullptr, /*allow_exceptions=*/false);
  if (!config.is_object() || !config.contains("eos_token_id")) return -1;
  const nlohmann::json& eos = config["eos_token_id"];
  const nlohmann::json& first = eos.is_array() && !eos.empty() ? eos[0] : eos;
  if (!first.is_number_integer()) return -1;
  const int64_t id = first.get<int64_t>();
  return id >= 0 && id <= kTokenMask ? static_cast<int32_t>(id) : -1;
}

bool IsChat(const DataFile& file) {
  return file.format == DataFormat::kAlpaca || file.format == DataFormat::kShareGpt ||
         file.format == DataFormat::kMessages;
}

// The id that closes text documents.
absl::StatusOr<int32_t> EosId(const Tokenizer& tokenizer, const std::string& model_directory,
                              int64_t vocabulary, FileSystem* files) {
  int32_t eos = tokenizer.eos_id();
  if (eos < 0) {
    MT_ASSIGN_OR_RETURN(eos, EosOfConfig(model_directory, files));
  }
  if (eos < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        model_directory,
        ": neither tokenizer_config.json's eos_token nor config.json's eos_token_id says which "
        "token ends a text; add one of them, or prepare the data as format tokens"));
  }
  if (eos >= vocabulary) {
    return absl::InvalidArgumentError(absl::StrCat(model_directory, ": the end-of-text token ", eos,
                                                   " is not below the model's vocabulary of ",
                                                   vocabulary,
                                                   "; the tokenizer is not this model's"));
  }
  return eos;
}

// Returns the id that fills the rest of a sequence. It is masked and nothing sees it, so any id of
// the model will do.
int32_t PadId(const Tokenizer* tokenizer, int64_t vocabulary) {
  if (tokenizer == nullptr) return 0;
  for (const int32_t id : {tokenizer->pad_id(), tokenizer->eos_id()}) {
    if (id >= 0 && id < vocabulary) return id;
  }
  return 0;
}

absl::Status CheckSpec(const JobSpec::Data& data) {
  if (data.train.empty()) {
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
  return absl::OkStatus();
}

absl::Status NoSequence(const std::string& key, const DatasetReport& report,
                        int64_t sequence_length) {
  std::string why;
  if (report.dropped_tokens > 0) {
    why = absl::StrCat(report.dropped_tokens, " tokens are fewer than one sequence of ",
                       sequence_length, "; shorten data.sequence_length");
  } else {
    why = absl::StrCat("none of ", report.documents,
                       " examples has a token that the loss is on within the first ",
                       sequence_length, " tokens");
  }
  return absl::InvalidArgumentError(absl::StrCat(key, ": makes no sequence: ", why));
}

// Bytes that preparing reports: token files are read once, others twice.
absl::StatusOr<int64_t> ProgressBytes(const JobSpec::Data& data, FileSystem* files) {
  int64_t total = 0;
  for (const auto* list : {&data.train, &data.eval}) {
    for (const DataFile& file : *list) {
      MT_ASSIGN_OR_RETURN(const std::unique_ptr<DataFileReader> reader,
                          DataFileReader::Open(file.path, files));
      total += reader->size() * (file.format == DataFormat::kTokens ? 1 : 2);
    }
  }
  return total;
}

absl::StatusOr<ChatTemplateOptions> TemplateOptions(const JobSpec::Data& data,
                                                    const std::string& model_directory,
                                                    FileSystem* files) {
  ChatTemplateOptions options;
  options.name = data.chat_template;
  options.model_directory = model_directory;
  options.files = files;
  if (data.train_on_prompt || data.train_on == "all") {
    options.train_on = TrainOn::kAll;
  } else if (data.train_on == "last") {
    options.train_on = TrainOn::kLast;
  }
  if (data.template_date.empty()) {
    options.day = absl::ToCivilDay(absl::Now(), absl::LocalTimeZone());
  } else if (!absl::ParseCivilTime(data.template_date, &options.day)) {
    return absl::InvalidArgumentError(absl::StrCat("data.template_date: \"", data.template_date,
                                                   "\" is not a day as 2026-01-31"));
  }
  return options;
}

// Settles the encoder's end of text and the chat template, where files need them.
absl::Status PrepareEncoder(const JobSpec::Data& data, const Tokenizer* tokenizer,
                            const std::string& model_directory, FileSystem* files,
                            DocumentEncoderOptions& encoder,
                            std::unique_ptr<ChatTemplate>& chat_template) {
  std::vector<DataFile> data_files = data.train;
  data_files.insert(data_files.end(), data.eval.begin(), data.eval.end());
  encoder.tokenizer = tokenizer;
  for (const DataFile& file : data_files) {
    if (file.format == DataFormat::kTokens) continue;
    if (tokenizer == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path, ": format ", DataFormatName(file.format),
                       " needs a tokenizer; give the "
                       "model's directory one, or data.tokenizer: bytes"));
    }
    if (file.format == DataFormat::kText && encoder.eos_id < 0) {
      MT_ASSIGN_OR_RETURN(encoder.eos_id,
                          EosId(*tokenizer, model_directory, encoder.vocabulary, files));
    }
    if (IsChat(file) && chat_template == nullptr) {
      MT_ASSIGN_OR_RETURN(const ChatTemplateOptions options,
                          TemplateOptions(data, model_directory, files));
      MT_ASSIGN_OR_RETURN(chat_template, ChatTemplate::Create(options, *tokenizer));
      encoder.chat_template = chat_template.get();
    }
  }
  return absl::OkStatus();
}

void AddReport(const DatasetReport& report, DatasetReport* sum) {
  for (int64_t DatasetReport::*count :
       {&DatasetReport::documents, &DatasetReport::tokens, &DatasetReport::sequences,
        &DatasetReport::truncated_examples, &DatasetReport::dropped_tokens,
        &DatasetReport::examples_without_target}) {
    sum->*count += report.*count;
  }
}

// Opens data.eval, the files of each name as a set. No sequence holds tokens of two sets.
absl::Status OpenEvalSets(const JobSpec::Data& data, const DataSideOptions& options,
                          const ByteProgress& progress, PreparedDataset& dataset) {
  std::vector<std::pair<std::string, std::vector<DataFile>>> sets;  // in the order of first files
  for (const DataFile& file : data.eval) {
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
    AddReport(side->report(), &dataset.eval_report_value);
    dataset.eval_set_values.push_back({name, dataset.eval_count, dataset.eval_count + sequences});
    dataset.eval_count += sequences;
    dataset.eval.push_back(std::move(side));
  }
  return absl::OkStatus();
}

// Opens both sides, or splits one by data.eval_fraction.
absl::Status OpenSides(const JobSpec::Data& data, const DataSideOptions& options,
                       const ByteProgress& progress, PreparedDataset& dataset) {
  MT_ASSIGN_OR_RETURN(dataset.train, DataSide::Open(data.train, options, progress));
  dataset.train_report_value = dataset.train->report();
  const int64_t sequences = dataset.train->sequences();
  if (sequences == 0) {
    return NoSequence("data.train", dataset.train->report(), data.sequence_length);
  }
  dataset.train_count = sequences;
  if (!data.eval.empty()) {
    MT_RETURN_IF_ERROR(OpenEvalSets(data, options, progress, dataset));
  } else if (data.eval_fraction > 0) {
    dataset.eval_count =
        static_cast<int64_t>(std::ceil(data.eval_fraction * static_cast<double>(sequences)));
    dataset.train_count = sequences - dataset.eval_count;
    if (dataset.train_count <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("data.eval_fraction: ", data.eval_fraction, " of ", sequences,
                       " sequences leaves none to train on; give more data or shorten "
                       "data.sequence_length"));
    }
    dataset.train_report_value.sequences = dataset.train_count;
    dataset.eval_report_value.sequences = dataset.eval_count;
    dataset.eval_set_values = {{"", 0, dataset.eval_count}};
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(
    const JobSpec& spec, std::shared_ptr<const Tokenizer> tokenizer,
    const std::string& model_directory, int64_t model_vocabulary,
    const std::string& cache_directory, const DataProgress& progress, FileSystem* files) {
  const JobSpec::Data& data = spec.data;
  MT_RETURN_IF_ERROR(CheckSpec(data));
  auto dataset = std::make_unique<PreparedDataset>();
  DataSideOptions options;
  options.packing = {data.sequence_length, data.packing};
  options.pad_id = PadId(tokenizer.get(), model_vocabulary);
  options.stream.cache_directory =
      data.cache_directory.empty() ? cache_directory : data.cache_directory;
  options.stream.files = files;
  options.stream.threads = spec.engine.threads > 0
                               ? static_cast<int>(spec.engine.threads)
                               : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  options.stream.encoder.vocabulary = model_vocabulary;
  MT_RETURN_IF_ERROR(PrepareEncoder(data, tokenizer.get(), model_directory, files,
                                    options.stream.encoder, dataset->chat_template));
  if (dataset->chat_template != nullptr && dataset->chat_template->uses_day()) {
    dataset->template_date_value = absl::FormatCivilTime(dataset->chat_template->day());
  }

  ByteProgress counted;
  int64_t bytes_done = 0;
  if (progress) {
    MT_ASSIGN_OR_RETURN(const int64_t bytes_total, ProgressBytes(data, files));
    counted = [&progress, &bytes_done, bytes_total](int64_t bytes) {
      bytes_done += bytes;
      return progress(std::min(bytes_done, bytes_total), bytes_total);
    };
  }
  dataset->tokenizer = std::move(tokenizer);
  dataset->shuffle = data.shuffle;
  dataset->seed = spec.training.seed;
  MT_RETURN_IF_ERROR(OpenSides(data, options, counted, *dataset));
  const std::string eval_keys = absl::StrJoin(
      dataset->eval, "\n", [](std::string* text, const std::unique_ptr<DataSide>& side) {
        absl::StrAppend(text, side->key());
      });
  dataset->fingerprint_value = HashText(absl::StrCat(
      "megatrain data 1\n", dataset->train->key(), "\n", eval_keys, "\n", dataset->train_count,
      "\n",
      data.shuffle ? absl::StrCat("shuffled by ", spec.training.seed) : std::string("in order")));
  return dataset;
}

absl::StatusOr<int64_t> TotalSteps(const JobSpec& spec, int64_t train_sequences) {
  const JobSpec::Training& training = spec.training;
  if (training.global_batch <= 0) {
    return absl::InvalidArgumentError("training.global_batch: must be at least 1");
  }
  if (training.steps > 0) return training.steps;
  if (!(training.epochs > 0)) {
    return absl::InvalidArgumentError("training.steps: neither steps nor epochs is given");
  }
  const double steps = std::ceil(training.epochs * static_cast<double>(train_sequences) /
                                 static_cast<double>(training.global_batch));
  if (!(steps >= 1 && steps < 9e15)) {
    return absl::InvalidArgumentError(absl::StrCat("training.epochs: ", training.epochs, " of ",
                                                   train_sequences,
                                                   " sequences is no number of "
                                                   "steps"));
  }
  return static_cast<int64_t>(steps);
}

}  // namespace megatrain
