// megatraind evaluate PATH --data FILE...: loss and perplexity of a model.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/bytes.h"
#include "engine/base/file.h"
#include "engine/base/status.h"
#include "engine/device/cuda/open_cuda_device.h"
#include "engine/engine.h"
#include "engine/inspect/inspect_sequences.h"
#include "engine/job/data_format.h"
#include "engine/job/data_paths.h"
#include "engine/job/job_parser.h"
#include "server/base/temporary_directory.h"
#include "server/commands/command.h"

namespace megatrain {
namespace {

struct EvaluateArguments {
  std::string path;
  std::vector<std::string> data;
  std::string format, dtype;
  std::vector<std::string> overrides;
  std::vector<std::string> short_overrides;  // made of other options
  std::string output = "table";
  std::string device = "auto";
  int threads = 0;
};

constexpr const char* kSettable[] = {"data.",
                                     "training.micro_batch=", "training.global_batch=", "engine."};

// The job whose evaluation this is: all its values are read and checked as those of a job file.
absl::StatusOr<JobSpec> JobOf(const EvaluateArguments& arguments) {
  for (const std::string& value : arguments.overrides) {
    bool settable = false;
    for (const char* const beginning : kSettable) settable |= absl::StartsWith(value, beginning);
    for (const char* const fixed : {"data.train=", "data.eval", "data.epochs="}) {
      settable &= !absl::StartsWith(value, fixed);
    }
    if (!settable) {
      return absl::InvalidArgumentError(
          absl::StrCat("--set ", value,
                       ": only keys that say how data.eval is read and evaluated can be set: "
                       "those of data and engine, training.micro_batch and training.global_batch"));
    }
  }
  nlohmann::json files;
  for (const std::string& path : arguments.data) {
    nlohmann::json file = {{"path", std::filesystem::absolute(path).lexically_normal().string()}};
    DataFormat format = DataFormat::kText;
    if (arguments.format.empty()) {
      // A directory and a glob are of the kind of their first file.
      DataFile entry;
      entry.path = file["path"];
      MT_ASSIGN_OR_RETURN(const std::vector<DataFile> found,
                          ExpandDataFile(entry, PosixFileSystem()));
      MT_ASSIGN_OR_RETURN(const DataFile guessed, GuessDataFile(found.front().path));
      format = guessed.format;
    } else {
      MT_ASSIGN_OR_RETURN(format, ParseDataFormat(arguments.format));
    }
    file["format"] = DataFormatName(format);
    if (!arguments.dtype.empty()) file["dtype"] = arguments.dtype;
    files.push_back(file);
  }
  const std::string model = std::filesystem::absolute(arguments.path).lexically_normal().string();
  const nlohmann::json job = {{"model", {{"path", model}}},
                              {"data", {{"train", files}, {"eval", files}}},
                              {"training", {{"steps", 1}}}};
  std::vector<std::string> overrides = arguments.overrides;
  overrides.insert(overrides.end(), arguments.short_overrides.begin(),
                   arguments.short_overrides.end());
  std::string text;
  try {
    text = job.dump();
  } catch (const nlohmann::json::exception&) {
    return absl::InvalidArgumentError(
        "the paths of the model and of the data must be UTF-8 text, and one of them is not");
  }
  MT_ASSIGN_OR_RETURN(JobSpec spec,
                      ParseJobText(text, "megatraind evaluate",
                                   std::filesystem::current_path().string(), overrides));
  spec.data.train.clear();
  return spec;
}

std::string Table(const EvaluationReport& report) {
  return absl::StrFormat(
      "loss        %.6f\nperplexity  %.6g\npredictions %s\ntokens      %s\n"
      "documents   %s\nsequences   %s\n",
      report.all.loss(), report.all.perplexity(), FormatCount(report.all.predictions),
      FormatCount(report.tokens), FormatCount(report.documents), FormatCount(report.sequences));
}

std::string Json(const EvaluationReport& report) {
  nlohmann::ordered_json json;
  json["loss"] = report.all.loss();
  json["perplexity"] = report.all.perplexity();
  json["predictions"] = report.all.predictions;
  json["tokens"] = report.tokens;
  json["documents"] = report.documents;
  json["sequences"] = report.sequences;
  return json.dump(2) + "\n";
}

absl::Status RunEvaluate(const EvaluateArguments& arguments) {
  MT_ASSIGN_OR_RETURN(const JobSpec spec, JobOf(arguments));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<EngineHost> host,
                      EngineHost::Create({.device = arguments.device,
                                          .device_key = "--device",
                                          .open_gpu = OpenCudaDevice,
                                          .threads = arguments.threads}));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<TemporaryDirectory> cache,
                      TemporaryDirectory::Create());
  MT_ASSIGN_OR_RETURN(const EvaluationReport report,
                      Evaluate(*host, spec, cache->path(), [](const std::string& line) {
                        std::fprintf(stderr, "%s\n", line.c_str());
                      }));
  std::fputs((arguments.output == "json" ? Json(report) : Table(report)).c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace

void AddEvaluateCommand(CLI::App* app, int* exit_code) {
  auto arguments = std::make_shared<EvaluateArguments>();
  CLI::App* const command = app->add_subcommand(
      "evaluate", "Loss and perplexity of a model in a Hugging Face directory or checkpoint");
  command->add_option("path", arguments->path, "the directory")->required()->type_name("PATH");
  command->add_option("--data", arguments->data, "data files, directories or globs; repeatable")
      ->required()
      ->type_name("FILE");
  command->add_option("--format", arguments->format,
                      absl::StrCat(kDataFormatNames, "; guessed if left out"));
  command->add_option("--dtype", arguments->dtype, "data in .bin: uint16 or uint32")
      ->check(CLI::IsMember({"uint16", "uint32"}));
  // Short forms of --set, with the same checks.
  const auto add_key = [&](const char* option, const char* key, const char* help) {
    command->add_option_function<std::string>(
        option,
        [arguments, key](const std::string& value) {
          arguments->short_overrides.push_back(absl::StrCat(key, "=", value));
        },
        help);
  };
  add_key("--sequence-length", "data.sequence_length", "in tokens, as data.sequence_length");
  add_key("--chat-template", "data.chat_template", "as data.chat_template");
  add_key("--train-on", "data.train_on", "as data.train_on: assistant, last or all");
  add_key("--tokenizer", "data.tokenizer", "auto, or bytes");
  command
      ->add_option("--set", arguments->overrides,
                   "a key of a job file that says how the data is read or evaluated; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  command->add_option("-o,--output", arguments->output)
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  command->add_option("--device", arguments->device, "auto, cpu, cuda or cuda:N")
      ->capture_default_str();
  command->add_option("--threads", arguments->threads, "0: the processors this process may use")
      ->check(CLI::Range(0, 4096))
      ->capture_default_str();
  command->callback([arguments, exit_code] { *exit_code = Report(RunEvaluate(*arguments)); });
}

}  // namespace megatrain
