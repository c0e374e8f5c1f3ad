// megatraind inspect PATH: what a model, a checkpoint, data or a job's data hold.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/inspect/inspect_checkpoint.h"
#include "engine/inspect/inspect_model.h"
#include "engine/inspect/inspect_sequences.h"
#include "engine/inspect/job_data.h"
#include "engine/job/data_format.h"
#include "engine/job/job_parser.h"
#include "server/base/temporary_directory.h"
#include "server/commands/command.h"

namespace megatrain {
namespace {

constexpr int64_t kSamples = 1;

struct InspectArguments {
  std::string path;
  std::vector<std::string> overrides;
  std::string output = "table";
  std::string sequences;
  bool verify_data = false;
  // Data files only.
  std::string format;
  std::string dtype;
  std::string model_directory;
  std::string chat_template = "auto";
  int64_t sequence_length = 1024;

  bool json() const { return output == "json"; }
};

struct PositionRange {
  int64_t begin = 0;
  int64_t end = 0;
};

absl::StatusOr<PositionRange> ParseRange(const std::string& text) {
  PositionRange range;
  const size_t colon = text.find(':');
  if (colon == std::string::npos || !absl::SimpleAtoi(text.substr(0, colon), &range.begin) ||
      !absl::SimpleAtoi(text.substr(colon + 1), &range.end)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--sequences ", text, ": expects A:B, as in 0:4"));
  }
  return range;
}

nlohmann::ordered_json ReportJson(const DatasetReport& report) {
  nlohmann::ordered_json json;
  json["documents"] = report.documents;
  json["tokens"] = report.tokens;
  json["sequences"] = report.sequences;
  json["truncated_examples"] = report.truncated_examples;
  json["dropped_tokens"] = report.dropped_tokens;
  json["examples_without_target"] = report.examples_without_target;
  json["turns_left_out"] = report.turns_without_loss;
  json["bad_records"] = report.bad_records.count;
  json["named_bad_records"] = report.bad_records.named;
  return json;
}

absl::StatusOr<std::string> InspectData(const JobData& data, const InspectArguments& arguments) {
  const Dataset& dataset = *data.dataset;
  if (!arguments.sequences.empty()) {
    MT_ASSIGN_OR_RETURN(const PositionRange range, ParseRange(arguments.sequences));
    if (arguments.json()) return SequencesJson(dataset, range.begin, range.end);
    return SequencesText(dataset, data.tokenizer.get(), range.begin, range.end);
  }
  if (!arguments.json()) return DescribeDataset(dataset, data.tokenizer.get(), kSamples);
  nlohmann::ordered_json json;
  json["kind"] = "data";
  json["train_sequences"] = dataset.train_sequences();
  json["eval_sequences"] = dataset.eval_sequences();
  json["train"] = ReportJson(dataset.train_report());
  json["eval"] = ReportJson(dataset.eval_report());
  if (!dataset.train_report().mix.empty()) {
    json["epoch_sequences"] = dataset.epoch_sequences();
    for (const MixedSource& source : dataset.train_report().mix) {
      json["mix"].push_back({{"path", source.path},
                             {"share", source.share},
                             {"sequences", source.sequences},
                             {"passes", source.passes}});
    }
  }
  json["fingerprint"] = dataset.fingerprint();
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

absl::StatusOr<std::string> InspectJob(const InspectArguments& arguments) {
  MT_ASSIGN_OR_RETURN(const JobSpec spec, ParseJobFile(arguments.path, arguments.overrides));
  MT_ASSIGN_OR_RETURN(const JobData data, OpenJobData(spec, arguments.verify_data));
  return InspectData(data, arguments);
}

absl::StatusOr<std::string> InspectDataFile(const InspectArguments& arguments) {
  StandaloneDataFile loose;
  if (arguments.format.empty()) {
    MT_ASSIGN_OR_RETURN(loose.file, GuessDataFile(arguments.path));
  } else {
    MT_ASSIGN_OR_RETURN(loose.file.format, ParseDataFormat(arguments.format));
  }
  loose.file.path = std::filesystem::absolute(arguments.path).lexically_normal().string();
  loose.file.dtype = arguments.dtype;
  loose.model_directory = arguments.model_directory;
  loose.chat_template = arguments.chat_template;
  loose.sequence_length = arguments.sequence_length;
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<TemporaryDirectory> cache,
                      TemporaryDirectory::Create());
  loose.cache_directory = cache->path();
  MT_ASSIGN_OR_RETURN(const JobData data, OpenStandaloneDataFile(loose));
  return InspectData(data, arguments);
}

absl::StatusOr<std::string> Inspect(const InspectArguments& arguments) {
  const std::filesystem::path path(arguments.path);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return absl::NotFoundError(absl::StrCat(arguments.path, ": no such file or directory"));
  }
  const bool is_directory = std::filesystem::is_directory(path, error);
  const bool is_job =
      absl::EndsWith(arguments.path, ".yaml") || absl::EndsWith(arguments.path, ".yml");
  if (is_job && !is_directory) return InspectJob(arguments);
  if (!is_directory && !absl::EndsWith(arguments.path, ".safetensors")) {
    return InspectDataFile(arguments);
  }
  if (!arguments.sequences.empty()) {
    return absl::InvalidArgumentError("--sequences is for jobs and data");
  }
  const bool is_checkpoint = is_directory && std::filesystem::exists(path / "manifest.json", error);
  MT_ASSIGN_OR_RETURN(const ModelReport report, is_checkpoint ? InspectCheckpoint(arguments.path)
                                                              : InspectModel(arguments.path));
  if (!arguments.json()) return report.text;
  return report.json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

void AddInspectCommand(CLI::App* app, int* exit_code) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* const command = app->add_subcommand(
      "inspect", "What a model directory, checkpoint, safetensors file, data file or job holds");
  command->add_option("path", arguments->path, "what to look into")->required()->type_name("PATH");
  command->add_option("-o,--output", arguments->output)
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  command
      ->add_option("--sequences", arguments->sequences,
                   "a job or data: the sequences at these positions of the training order")
      ->type_name("A:B");
  command->add_flag("--verify-data", arguments->verify_data,
                    "a job: read data again that looks unchanged");
  command->add_option("--set", arguments->overrides, "a job: replace a value; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_option("--format", arguments->format,
                      absl::StrCat("data: ", kDataFormatNames, "; guessed if left out"));
  command->add_option("--dtype", arguments->dtype, "data in .bin: uint16 or uint32")
      ->check(CLI::IsMember({"uint16", "uint32"}));
  command->add_option("--model", arguments->model_directory,
                      "data: the directory whose tokenizer to use; else bytes");
  command->add_option("--chat-template", arguments->chat_template, "data")->capture_default_str();
  command->add_option("--sequence-length", arguments->sequence_length, "data")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 24))
      ->capture_default_str();
  command->callback([arguments, exit_code] {
    const absl::StatusOr<std::string> text = Inspect(*arguments);
    if (text.ok()) std::fputs(text->c_str(), stdout);
    *exit_code = Report(text.status());
  });
}

}  // namespace megatrain
