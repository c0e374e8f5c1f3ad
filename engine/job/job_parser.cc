#include "engine/job/job_parser.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "engine/job/job_keys.h"
#include "engine/job/nearest_key.h"
#include "engine/job/yaml_tree.h"

namespace megatrain {
namespace {

constexpr int64_t kStepsDefault = 200;

absl::Status Invalid(const std::string& where, const std::string& key, const std::string& message) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", key, ": ", message));
}

absl::Status UnknownKey(const std::string& where, const std::string& path) {
  std::vector<std::string> known = JobSections();
  for (const std::string& key : JobKeyPaths()) known.push_back(key);
  return Invalid(where, path,
                 absl::StrCat("unknown key; did you mean ", NearestKey(path, known), "?"));
}

// ---- Overrides ----

// The value's place in the tree, made where it is missing.
absl::StatusOr<YamlNode*> Reach(YamlNode* root, const std::string& path, const std::string& where) {
  YamlNode* node = root;
  std::string so_far;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(path, '.'))) {
    if (node->kind == YamlNode::Kind::kSequence) {
      size_t index = 0;
      if (!absl::SimpleAtoi(word, &index) || index >= node->items.size()) {
        return Invalid(where, path,
                       absl::StrCat(so_far, " is a list of ", node->items.size(),
                                    " entries, numbered from 0; there is no ", word));
      }
      node = &node->items[index];
    } else {
      if (node->kind == YamlNode::Kind::kScalar) return UnknownKey(where, path);
      node->kind = YamlNode::Kind::kMap;
      YamlNode* next = node->Find(word);
      if (next == nullptr) {
        if (node->entries.size() >= kYamlKeysOfMapMax) return UnknownKey(where, path);
        YamlNode fresh;
        fresh.where = where;
        node->entries.emplace_back(std::string(word), std::move(fresh));
        next = &node->entries.back().value;
      }
      node = next;
    }
    absl::StrAppend(&so_far, so_far.empty() ? "" : ".", word);
  }
  return node;
}

void SetWhere(YamlNode* node, const std::string& where) {
  node->where = where;
  for (YamlNode& item : node->items) SetWhere(&item, where);
  for (auto& [key, value] : node->entries) SetWhere(&value, where);
}

absl::Status ApplyOverride(const std::string& text, YamlNode* root) {
  const std::string where = absl::StrCat("--set ", text);
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": expects KEY=VALUE, as in training.steps=50"));
  }
  const std::string path = text.substr(0, equals);
  const std::string value = text.substr(equals + 1);
  // Of the words of a path only list numbers differ from the known keys'.
  std::vector<std::string> words = absl::StrSplit(path, '.');
  const bool in_list =
      words.size() > 2 && words[0] == "data" && (words[1] == "train" || words[1] == "eval");
  if (!in_list && FindJobKey(path) == nullptr) {
    if (IsJobSection(path)) {
      return Invalid(where, path, absl::StrCat("is a section; name one of its keys"));
    }
    return UnknownKey(where, path);
  }
  YamlNode node;
  if (!value.empty() && std::strchr("[{\"'", value[0]) != nullptr) {
    absl::StatusOr<YamlNode> parsed = ParseYaml(value, where);
    if (!parsed.ok()) return parsed.status();
    node = *std::move(parsed);
  } else {
    node.kind = YamlNode::Kind::kScalar;
    node.scalar = value;
  }
  SetWhere(&node, where);
  MT_ASSIGN_OR_RETURN(YamlNode * place, Reach(root, path, where));
  *place = std::move(node);
  return absl::OkStatus();
}

// ---- The tree into the spec ----

// Which keys were given, and where.
using Given = std::vector<std::pair<std::string, std::string>>;

std::string WhereGiven(const Given& given, const std::string& path) {
  for (const auto& [key, where] : given) {
    if (key == path) return where;
  }
  return "";
}

absl::Status ReadSection(const YamlNode& section, const std::string& prefix, JobSpec* spec,
                         Given* given) {
  for (const auto& [word, node] : section.entries) {
    const std::string path = prefix.empty() ? word : absl::StrCat(prefix, ".", word);
    if (absl::StrContains(word, '.')) {
      return Invalid(node.where, path,
                     "keys are nested in a file, as in training: {steps: 50}, not joined by dots");
    }
    if (const JobKey* key = FindJobKey(path)) {
      if (std::optional<ValueError> error = key->set(node, spec)) {
        const std::string where = error->where.empty() ? node.where : error->where;
        if (error->message.empty()) {
          error->message = absl::StrCat("expects ", key->expects, ", got ", node.Describe());
        }
        return Invalid(where, path + error->suffix, error->message);
      }
      given->emplace_back(path, node.where);
    } else if (!IsJobSection(path)) {
      return UnknownKey(node.where, path);
    } else if (node.kind == YamlNode::Kind::kMap) {
      MT_RETURN_IF_ERROR(ReadSection(node, path, spec, given));
    } else if (node.kind != YamlNode::Kind::kNull) {  // a section without keys is empty
      return Invalid(node.where, path, absl::StrCat("expects a map, got ", node.Describe()));
    }
  }
  return absl::OkStatus();
}

// What no key can check alone.
absl::Status CheckTogether(const std::string& name, const Given& given, JobSpec* spec) {
  const auto where = [&](const std::string& path) {
    const std::string place = WhereGiven(given, path);
    return place.empty() ? name : place;
  };
  if (spec->model.path.empty()) {
    return Invalid(name, "model.path", "is missing; name a Hugging Face model directory");
  }
  if (spec->data.train.empty()) {
    return Invalid(where("data.train"), "data.train",
                   "is missing or empty; list the training files");
  }
  const bool has_steps = !WhereGiven(given, "training.steps").empty();
  const bool has_epochs = !WhereGiven(given, "training.epochs").empty();
  if (has_steps && has_epochs) {
    return Invalid(where("training.epochs"), "training.epochs",
                   absl::StrCat("training.steps is given too (", where("training.steps"),
                                "); give one of them"));
  }
  if (!has_steps && !has_epochs) spec->training.steps = kStepsDefault;
  if (spec->training.global_batch % spec->training.micro_batch != 0) {
    const bool blame_micro = !WhereGiven(given, "training.micro_batch").empty();
    const char* key = blame_micro ? "training.micro_batch" : "training.global_batch";
    return Invalid(
        where(key), key,
        absl::StrCat("micro_batch must divide global_batch; ", spec->training.micro_batch,
                     " does not divide ", spec->training.global_batch));
  }
  if (!spec->data.eval.empty() && spec->data.eval_fraction > 0) {
    return Invalid(where("data.eval_fraction"), "data.eval_fraction",
                   "data.eval is given too; the fraction is split off only without it");
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
  paths.emplace_back("checkpoint.directory", &spec->checkpoint.directory);
  paths.emplace_back("output.directory", &spec->output.directory);
  return paths;
}

// An empty `base_directory`: nothing that a relative path could be taken from.
absl::Status ResolvePaths(const std::string& base_directory, const std::string& name,
                          const Given& given, JobSpec* spec) {
  for (const auto& [key, path] : Paths(spec)) {
    if (base_directory.empty() && !path->empty() && path->front() != '/') {
      const std::string where = WhereGiven(given, key);
      return Invalid(where.empty() ? name : where, key,
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
  MT_ASSIGN_OR_RETURN(YamlNode root, ParseYaml(text, name));
  if (root.kind == YamlNode::Kind::kNull) root.kind = YamlNode::Kind::kMap;
  if (root.kind != YamlNode::Kind::kMap) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": a job file is a map of keys, this is ", root.Describe()));
  }
  for (const std::string& text : overrides) MT_RETURN_IF_ERROR(ApplyOverride(text, &root));
  JobSpec spec;
  Given given;
  MT_RETURN_IF_ERROR(ReadSection(root, "", &spec, &given));
  MT_RETURN_IF_ERROR(CheckTogether(name, given, &spec));
  if (!submitted && spec.checkpoint.directory.empty()) {
    spec.checkpoint.directory = spec.name + "/checkpoints";
  }
  MT_RETURN_IF_ERROR(ResolvePaths(base_directory, name, given, &spec));
  return spec;
}

}  // namespace

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
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a directory, not a job file"));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(absl::StrCat(path, ": ", std::strerror(errno ? errno : ENOENT)));
  }
  // One byte over the limit is enough to be refused, however large the file is.
  std::string text(kYamlBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (file.bad()) return absl::DataLossError(absl::StrCat(path, ": ", std::strerror(errno)));
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) return absl::InternalError(absl::StrCat(path, ": ", error.message()));
  return ParseJobText(text, path, absolute.parent_path().string(), overrides);
}

}  // namespace megatrain
