#include "engine/job/job_parser.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/directories/file_place.h"
#include "engine/base/status.h"
#include "engine/config/config_reader.h"
#include "engine/job/job_keys.h"

namespace megatrain {
namespace {

// Each pattern is compared with each tensor's name.
constexpr size_t kPatternsMax = 256;
// Two answers, each of a token and one before it.
constexpr int64_t kPairTokensMin = 4;
constexpr size_t kSamplePromptsMax = 64;

// The place of a key: where it was given, else the file.
std::string Where(const GivenKeys& given, const std::string& key, const std::string& name) {
  const auto found = given.find(key);
  return found == given.end() ? name : found->second;
}

absl::Status CheckObjective(const std::string& name, const GivenKeys& given, const JobSpec& spec) {
  const JobSpec::Training& training = spec.training;
  const auto error = [&](const std::string& key, const std::string& message) {
    return KeyError(Where(given, key, name), key, message);
  };
  if (training.objective == Objective::kCausal) {
    const PreferenceObjective none;
    for (const auto& [key, changed] :
         {std::pair{"training.dpo_beta", training.dpo.beta != none.beta},
          std::pair{"training.dpo_loss", training.dpo.loss != none.loss},
          std::pair{"training.dpo_label_smoothing",
                    training.dpo.label_smoothing != none.label_smoothing},
          std::pair{"training.dpo_reference_free", training.dpo_reference_free}}) {
      if (changed) return error(key, "is for training.objective: dpo, and the objective is causal");
    }
  } else if (training.dpo.label_smoothing > 0 &&
             training.dpo.loss != PreferenceLossKind::kSigmoid &&
             training.dpo.loss != PreferenceLossKind::kRobust) {
    return error("training.dpo_label_smoothing",
                 "is for dpo_loss: sigmoid or robust; the other losses have none");
  } else if (spec.data.train_on == "all" || spec.data.train_on_prompt) {
    return error(spec.data.train_on_prompt ? "data.train_on_prompt" : "data.train_on",
                 "with training.objective: dpo the answers alone are compared; the prompt is the "
                 "same for both");
  } else if (spec.data.sequence_length < kPairTokensMin) {
    return error("data.sequence_length",
                 absl::StrCat("a pair of answers takes at least ", kPairTokensMin, " tokens"));
  }
  for (const auto& [key, files] :
       {std::pair{"data.train", &spec.data.train}, std::pair{"data.eval", &spec.data.eval}}) {
    for (const DataFile& file : *files) {
      const bool pairs_only = file.format == DataFormat::kPreference;
      if (training.objective == Objective::kCausal && pairs_only) {
        return error(key, absl::StrCat(file.path,
                                       ": format preference holds pairs of answers, which "
                                       "training.objective: dpo takes"));
      }
      if (training.objective == Objective::kDpo &&
          (file.format == DataFormat::kText || file.format == DataFormat::kTokens)) {
        return error(key, absl::StrCat(file.path, ": format ", DataFormatName(file.format),
                                       " holds no pairs of answers, which training.objective: dpo "
                                       "needs; preference, alpaca, sharegpt and messages may"));
      }
    }
  }
  return absl::OkStatus();
}

// Checks the rules that span several keys.
absl::Status CheckTogether(const std::string& name, const GivenKeys& given, JobSpec* spec) {
  const auto error = [&](const std::string& key, const std::string& message) {
    return KeyError(Where(given, key, name), key, message);
  };
  const bool has_steps = given.contains("training.steps");
  const bool has_epochs = given.contains("training.epochs");
  if (has_steps && has_epochs) {
    return error("training.epochs",
                 absl::StrCat("training.steps is given too (", given.at("training.steps"),
                              "); give one of them"));
  }
  if (!has_steps && !has_epochs) spec->training.steps = kStepsDefault;
  if (spec->training.global_batch % spec->training.micro_batch != 0) {
    const bool blame_micro = given.contains("training.micro_batch");
    return error(blame_micro ? "training.micro_batch" : "training.global_batch",
                 absl::StrCat("micro_batch must divide global_batch; ", spec->training.micro_batch,
                              " does not divide ", spec->training.global_batch));
  }
  if (const int64_t shards = spec->training.gradient_shards; (shards & (shards - 1)) != 0) {
    return error(
        "training.gradient_shards",
        absl::StrCat("must be a power of two, so that parts are added in pairs; got ", shards));
  }
  MT_RETURN_IF_ERROR(CheckObjective(name, given, *spec));
  const bool on_all = spec->data.train_on == "all";
  if (given.contains("data.train_on_prompt") && given.contains("data.train_on") &&
      on_all != spec->data.train_on_prompt) {
    return error("data.train_on_prompt",
                 absl::StrCat("contradicts data.train_on: ", spec->data.train_on, " (",
                              given.at("data.train_on"), "); give one of them"));
  }
  // Either key says the same.
  if (on_all) spec->data.train_on_prompt = true;
  if (spec->data.train_on_prompt) spec->data.train_on = "all";
  if (spec->training.freeze.size() > kPatternsMax) {
    return error("training.freeze", absl::StrCat("at most ", kPatternsMax, " patterns"));
  }
  if (spec->optimizer.groups.size() > kPatternsMax) {
    return error("optimizer.groups", absl::StrCat("at most ", kPatternsMax, " groups"));
  }
  if (spec->data.eval.empty() && spec->data.eval_fraction == 0) {
    const std::pair<const char*, bool> uses[] = {
        {"training.keep_best", spec->training.keep_best},
        {"training.stop_after_worse", spec->training.stop_after_worse > 0},
        {"training.sample_prompts", !spec->training.sample_prompts.empty()}};
    for (const auto& [key, on] : uses) {
      if (on) {
        return error(key, "there is nothing to evaluate; give data.eval or data.eval_fraction");
      }
    }
  }
  if (spec->training.sample_prompts.size() > kSamplePromptsMax) {
    return error("training.sample_prompts",
                 absl::StrCat("at most ", kSamplePromptsMax, " prompts"));
  }
  if (!spec->training.sample_prompts.empty() && spec->report.tensorboard.empty()) {
    return error("training.sample_prompts",
                 "the answers are written to report.tensorboard, which is empty");
  }
  if (!spec->data.eval.empty() && spec->data.eval_fraction > 0) {
    return error("data.eval_fraction",
                 "data.eval is given too; the fraction is split off only without it");
  }
  const auto weighted = [](const DataFile& file) { return file.weight > 0; };
  const std::vector<DataFile>& train = spec->data.train;
  const auto with = std::count_if(train.begin(), train.end(), weighted);
  if (with != 0 && with != static_cast<ptrdiff_t>(train.size())) {
    const auto without = std::find_if_not(train.begin(), train.end(), weighted);
    return error("data.train", absl::StrCat("weight is given for ", with, " of ", train.size(),
                                            " entries, and not for ", without->path,
                                            "; give it for all or for none"));
  }
  if (std::any_of(spec->data.eval.begin(), spec->data.eval.end(), weighted)) {
    return error("data.eval", "weight is for data.train; evaluation takes every sequence once");
  }
  return absl::OkStatus();
}

void ResolvePath(const std::string& base_directory, std::string* path) {
  if (path->empty()) return;
  *path = (std::filesystem::path(base_directory) / *path).lexically_normal().string();
  if (path->size() > 1 && path->back() == '/') path->pop_back();
}

// Each path of the spec with its key.
std::vector<std::pair<std::string, std::string*>> Paths(JobSpec* spec) {
  std::vector<std::pair<std::string, std::string*>> paths = {{"model.path", &spec->model.path}};
  for (DataFile& file : spec->data.train) paths.emplace_back("data.train", &file.path);
  for (DataFile& file : spec->data.eval) paths.emplace_back("data.eval", &file.path);
  paths.emplace_back("data.cache_directory", &spec->data.cache_directory);
  if (absl::EndsWith(spec->data.chat_template, ".jinja")) {
    paths.emplace_back("data.chat_template", &spec->data.chat_template);
  }
  paths.emplace_back("checkpoint.directory", &spec->checkpoint.directory);
  paths.emplace_back("output.directory", &spec->output.directory);
  paths.emplace_back("report.tensorboard", &spec->report.tensorboard);
  return paths;
}

// An empty `base_directory`: nothing that a relative path could be taken from.
absl::Status ResolvePaths(const std::string& base_directory, const std::string& name,
                          const GivenKeys& given, JobSpec* spec) {
  for (const auto& [key, path] : Paths(spec)) {
    if (base_directory.empty() && !path->empty() && path->front() != '/') {
      return KeyError(Where(given, key, name), key,
                      absl::StrCat("\"", *path,
                                   "\" is a relative path, and there is no directory here to take "
                                   "it from; give an absolute path"));
    }
    ResolvePath(base_directory, path);
  }
  return absl::OkStatus();
}

absl::StatusOr<JobSpec> Parse(std::string_view text, const std::string& name,
                              const std::string& base_directory,
                              const std::vector<std::string>& overrides, bool submitted) {
  JobSpec spec;
  MT_ASSIGN_OR_RETURN(const GivenKeys given, ReadConfig(JobKeys(&spec), text, name, overrides));
  MT_RETURN_IF_ERROR(CheckTogether(name, given, &spec));
  if (!submitted && spec.checkpoint.directory.empty()) {
    spec.checkpoint.directory = spec.name + "/checkpoints";
  }
  MT_RETURN_IF_ERROR(ResolvePaths(base_directory, name, given, &spec));
  if (submitted) return spec;
  if (const absl::Status apart = CheckOutputIsApart(spec); !apart.ok()) {
    return KeyError(Where(given, "output.directory", name), "output.directory",
                    std::string(apart.message()));
  }
  return spec;
}

}  // namespace

absl::Status CheckOutputIsApart(const JobSpec& spec) {
  const std::string& output = spec.output.directory;
  if (output.empty()) return absl::OkStatus();
  for (const auto& [key, path] : {std::pair("checkpoint.directory", &spec.checkpoint.directory),
                                  std::pair("report.tensorboard", &spec.report.tensorboard),
                                  std::pair("data.cache_directory", &spec.data.cache_directory)}) {
    if (*path != output && !absl::StartsWith(*path, absl::StrCat(output, "/"))) continue;
    return absl::InvalidArgumentError(absl::StrCat(output,
                                                   " is replaced as a whole at the end, and ", key,
                                                   " (", *path, ") lies in it; name another"));
  }
  return absl::OkStatus();
}

absl::StatusOr<JobSpec> ParseJobText(std::string_view text, const std::string& name,
                                     const std::string& base_directory,
                                     const std::vector<std::string>& overrides) {
  return Parse(text, name, base_directory, overrides, /*submitted=*/false);
}

absl::StatusOr<JobSpec> ParseSubmittedJob(std::string_view text, const std::string& name,
                                          const std::string& base_directory,
                                          const std::vector<std::string>& overrides) {
  return Parse(text, name, base_directory, overrides, /*submitted=*/true);
}

absl::StatusOr<JobSpec> ParseJobFile(const std::string& path,
                                     const std::vector<std::string>& overrides) {
  MT_ASSIGN_OR_RETURN(const std::string text, ReadConfigText(path));
  MT_ASSIGN_OR_RETURN(const std::string directory, DirectoryOfFile(path));
  return ParseJobText(text, path, directory, overrides);
}

}  // namespace megatrain
