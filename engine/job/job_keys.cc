#include "engine/job/job_keys.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/bytes.h"
#include "engine/job/data_file_keys.h"
#include "engine/job/device_name.h"

namespace megatrain {
namespace {

constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();

// A refusal that only says that the value is not what the key expects.
using Result = std::optional<ValueError>;
Result Unexpected() { return ValueError{}; }
Result Good() { return std::nullopt; }

bool IsPlain(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kScalar && !node.quoted && !node.scalar.empty();
}

// A member of a section of the spec, reachable in a const and in a mutable spec.
template <auto kSection, auto kMember>
struct Field {
  static auto& In(JobSpec& spec) { return (spec.*kSection).*kMember; }
  static const auto& In(const JobSpec& spec) { return (spec.*kSection).*kMember; }
};

// Shortest decimal text that reads back as the same double.
std::string DoubleText(double value) {
  for (int digits = 1; digits < 17; ++digits) {
    std::string text = absl::StrFormat("%.*g", digits, value);
    double back = 0;
    if (absl::SimpleAtod(text, &back) && back == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

template <typename F>
JobKey Integer(std::string path, int64_t min, int64_t max = kInt64Max, std::string note = "") {
  JobKey key;
  key.path = std::move(path);
  key.expects = max == kInt64Max ? absl::StrCat("a whole number of ", min, " or more", note)
                                 : absl::StrCat("a whole number from ", min, " to ", max, note);
  key.set = [min, max](const YamlNode& node, JobSpec* spec) -> Result {
    int64_t value = 0;
    if (!IsPlain(node) || !absl::SimpleAtoi(node.scalar, &value)) return Unexpected();
    if (value < min || value > max) return Unexpected();
    F::In(*spec) = value;
    return Good();
  };
  key.get = [](const JobSpec& spec) { return absl::StrCat(F::In(spec)); };
  return key;
}

template <typename F>
JobKey Seed(std::string path) {
  JobKey key;
  key.path = std::move(path);
  key.expects = "a whole number from 0 to 18446744073709551615";
  key.set = [](const YamlNode& node, JobSpec* spec) -> Result {
    uint64_t value = 0;
    if (!IsPlain(node) || !absl::SimpleAtoi(node.scalar, &value)) return Unexpected();
    F::In(*spec) = value;
    return Good();
  };
  key.get = [](const JobSpec& spec) { return absl::StrCat(F::In(spec)); };
  return key;
}

struct Range {
  double min = 0;
  double max = 0;
  bool min_allowed = true;
  bool max_allowed = true;
};

template <typename F>
JobKey Number(std::string path, Range range, std::string note = "") {
  JobKey key;
  key.path = std::move(path);
  key.expects =
      absl::StrCat("a number ", range.min_allowed ? "from " : "above ", DoubleText(range.min),
                   range.max_allowed ? " to " : " to below ", DoubleText(range.max), note);
  key.set = [range](const YamlNode& node, JobSpec* spec) -> Result {
    double value = 0;
    if (!IsPlain(node) || !absl::SimpleAtod(node.scalar, &value)) return Unexpected();
    if (!std::isfinite(value) || value < range.min || value > range.max) return Unexpected();
    if (!range.min_allowed && value == range.min) return Unexpected();
    if (!range.max_allowed && value == range.max) return Unexpected();
    F::In(*spec) = value;
    return Good();
  };
  key.get = [](const JobSpec& spec) { return DoubleText(F::In(spec)); };
  return key;
}

template <typename F>
JobKey Boolean(std::string path) {
  JobKey key;
  key.path = std::move(path);
  key.expects = "true or false";
  key.set = [](const YamlNode& node, JobSpec* spec) -> Result {
    if (!IsPlain(node)) return Unexpected();
    if (node.scalar != "true" && node.scalar != "false") return Unexpected();
    F::In(*spec) = node.scalar == "true";
    return Good();
  };
  key.get = [](const JobSpec& spec) { return F::In(spec) ? "true" : "false"; };
  return key;
}

template <typename F>
JobKey Bytes(std::string path, std::string note = "") {
  JobKey key;
  key.path = std::move(path);
  key.expects = absl::StrCat("a size in bytes, or with KiB, MiB, GiB or TiB, as in 24GiB", note);
  key.set = [](const YamlNode& node, JobSpec* spec) -> Result {
    if (!IsPlain(node)) return Unexpected();
    absl::StatusOr<int64_t> bytes = ParseBytes(node.scalar);
    if (!bytes.ok()) return Unexpected();
    F::In(*spec) = *bytes;
    return Good();
  };
  key.get = [](const JobSpec& spec) { return absl::StrCat(F::In(spec)); };
  return key;
}

// Any text, numbers and words alike. `check` may refuse it.
template <typename F>
JobKey Text(std::string path, std::string expects, Result (*check)(const std::string&) = nullptr) {
  JobKey key;
  key.path = std::move(path);
  key.expects = std::move(expects);
  key.set = [check](const YamlNode& node, JobSpec* spec) -> Result {
    if (node.kind != YamlNode::Kind::kScalar) return Unexpected();
    if (check != nullptr) {
      if (Result error = check(node.scalar)) return error;
    }
    F::In(*spec) = node.scalar;
    return Good();
  };
  key.get = [](const JobSpec& spec) { return std::string(F::In(spec)); };
  return key;
}

template <typename T>
using Words = std::vector<std::pair<std::string, T>>;

template <typename F, typename T>
JobKey Choice(std::string path, Words<T> words) {
  JobKey key;
  key.path = std::move(path);
  for (size_t i = 0; i < words.size(); ++i) {
    absl::StrAppend(&key.expects,
                    i == 0                  ? ""
                    : i + 1 == words.size() ? " or "
                                            : ", ",
                    words[i].first);
  }
  key.set = [words](const YamlNode& node, JobSpec* spec) -> Result {
    if (node.kind != YamlNode::Kind::kScalar) return Unexpected();
    for (const auto& [word, value] : words) {
      if (word != node.scalar) continue;
      F::In(*spec) = value;
      return Good();
    }
    return Unexpected();
  };
  key.get = [words](const JobSpec& spec) {
    for (const auto& [word, value] : words) {
      if (F::In(spec) == value) return word;
    }
    return std::string();
  };
  return key;
}

// A choice of one, which needs no field.
JobKey OptimizerType() {
  JobKey key;
  key.path = "optimizer.type";
  key.expects = "adamw";
  key.set = [](const YamlNode& node, JobSpec*) -> Result {
    return node.kind == YamlNode::Kind::kScalar && node.scalar == "adamw" ? Good() : Unexpected();
  };
  key.get = [](const JobSpec&) { return "adamw"; };
  return key;
}

template <typename F>
JobKey DataFiles(std::string path) {
  JobKey key;
  key.path = std::move(path);
  key.expects = "a list of {path: ..., format: ...}";
  key.set = [](const YamlNode& node, JobSpec* spec) -> Result {
    return ReadDataFiles(node, &F::In(*spec));
  };
  key.get = [](const JobSpec& spec) { return DataFilesText(F::In(spec)); };
  return key;
}

// ---- Checks of texts ----

// The name becomes a directory's.
Result CheckName(const std::string& name) {
  bool good = !name.empty() && name.size() <= 100 && name[0] != '.' && name[0] != '-';
  for (char c : name) {
    good = good && (absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.');
  }
  return good ? Good() : Unexpected();
}

Result CheckNotEmpty(const std::string& text) { return text.empty() ? Unexpected() : Good(); }

Result CheckTokenizer(const std::string& tokenizer) {
  return tokenizer == "auto" || tokenizer == "bytes" ? Good() : Unexpected();
}

Result CheckTemplate(const std::string& name) {
  const bool known = name == "auto" || name == "chatml" || name == "llama3" || name == "mistral" ||
                     name == "gemma" || name == "alpaca";
  return known ? Good() : Unexpected();
}

Result CheckDevice(const std::string& device) {
  return ParseDeviceName(device).has_value() ? Good() : Unexpected();
}

// ---- The table ----

#define FIELD(section, type, member) Field<&JobSpec::section, &JobSpec::type::member>

struct NameField {
  static std::string& In(JobSpec& spec) { return spec.name; }
  static const std::string& In(const JobSpec& spec) { return spec.name; }
};

// One buffer could not be loaded while it is computed with.
JobKey WeightBuffers() {
  JobKey key = Integer<FIELD(engine, Engine, weight_buffers)>("engine.weight_buffers", 0, 4096);
  key.expects = "a whole number from 2 to 4096, or 0 (chosen by predicted time)";
  key.set = [set = key.set](const YamlNode& node, JobSpec* spec) -> Result {
    const Result refused = set(node, spec);
    return spec->engine.weight_buffers == 1 ? Unexpected() : refused;
  };
  return key;
}

std::vector<JobKey> MakeKeys() {
  const Words<Precision> precisions = {{"bf16", Precision::kBf16}, {"fp32", Precision::kFp32}};
  std::vector<JobKey> keys = {
      Text<NameField>("name",
                      "1 to 100 letters, digits, '-', '_' or '.', not beginning with '-' or '.'",
                      CheckName),

      Text<FIELD(model, Model, path)>("model.path", "the path of a Hugging Face model directory",
                                      CheckNotEmpty),
      Choice<FIELD(model, Model, random_initialization)>(
          "model.initialization", Words<bool>{{"pretrained", false}, {"random", true}}),

      DataFiles<FIELD(data, Data, train)>("data.train"),
      DataFiles<FIELD(data, Data, eval)>("data.eval"),
      Number<FIELD(data, Data, eval_fraction)>("data.eval_fraction", {0, 1, true, false}),
      Integer<FIELD(data, Data, sequence_length)>("data.sequence_length", 2, int64_t{1} << 24),
      Boolean<FIELD(data, Data, packing)>("data.packing"),
      Boolean<FIELD(data, Data, shuffle)>("data.shuffle"),
      Text<FIELD(data, Data, cache_directory)>("data.cache_directory", "a path, or \"\""),
      Boolean<FIELD(data, Data, train_on_prompt)>("data.train_on_prompt"),
      Text<FIELD(data, Data, chat_template)>(
          "data.chat_template", "auto, chatml, llama3, mistral, gemma or alpaca", CheckTemplate),
      Text<FIELD(data, Data, tokenizer)>("data.tokenizer", "auto or bytes", CheckTokenizer),

      Integer<FIELD(training, Training, steps)>("training.steps", 1, 1000000000000),
      Number<FIELD(training, Training, epochs)>("training.epochs", {0, 1e6, false, true}),
      Integer<FIELD(training, Training, global_batch)>("training.global_batch", 1, 1 << 24),
      Integer<FIELD(training, Training, micro_batch)>("training.micro_batch", 1, 1 << 24),
      Choice<FIELD(training, Training, precision)>("training.precision", precisions),
      Choice<FIELD(training, Training, gradient_dtype)>(
          "training.gradient_dtype", Words<Precision>{precisions[1], precisions[0]}),
      Seed<FIELD(training, Training, seed)>("training.seed"),
      Integer<FIELD(training, Training, eval_every)>("training.eval_every", 0, kInt64Max,
                                                     " (0 = only after the last step)"),

      OptimizerType(),
      Number<FIELD(optimizer, Optimizer, learning_rate)>("optimizer.learning_rate", {0, 1000}),
      Number<FIELD(optimizer, Optimizer, beta1)>("optimizer.beta1", {0, 1, true, false}),
      Number<FIELD(optimizer, Optimizer, beta2)>("optimizer.beta2", {0, 1, true, false}),
      // Zero would make 0/0 of an element whose gradients are all zero.
      Number<FIELD(optimizer, Optimizer, epsilon)>("optimizer.epsilon", {1e-30, 1}),
      Number<FIELD(optimizer, Optimizer, weight_decay)>("optimizer.weight_decay", {0, 1000}),
      Number<FIELD(optimizer, Optimizer, max_gradient_norm)>("optimizer.max_gradient_norm",
                                                             {0, 1e30}, " (0 = no clipping)"),

      Choice<FIELD(schedule, Schedule, type)>(
          "schedule.type",
          Words<ScheduleType>{{"cosine", ScheduleType::kCosine},
                              {"linear", ScheduleType::kLinear},
                              {"constant", ScheduleType::kConstant},
                              {"warmup_stable_decay", ScheduleType::kWarmupStableDecay}}),
      Integer<FIELD(schedule, Schedule, warmup_steps)>("schedule.warmup_steps", 0),
      Number<FIELD(schedule, Schedule, final_fraction)>("schedule.final_fraction", {0, 1}),
      Number<FIELD(schedule, Schedule, decay_fraction)>("schedule.decay_fraction", {0, 1}),

      Text<FIELD(checkpoint, Checkpoint, directory)>("checkpoint.directory", "a path, or \"\""),
      Integer<FIELD(checkpoint, Checkpoint, every_steps)>("checkpoint.every_steps", 0, kInt64Max,
                                                          " (0 = only at the end)"),
      Integer<FIELD(checkpoint, Checkpoint, keep)>("checkpoint.keep", 1),

      Text<FIELD(output, Output, directory)>("output.directory", "a path, or \"\""),

      Text<FIELD(engine, Engine, device)>("engine.device", kDeviceNames, CheckDevice),
      Choice<FIELD(engine, Engine, attention)>(
          "engine.attention", Words<AttentionChoice>{{"auto", AttentionChoice::kAuto},
                                                     {"library", AttentionChoice::kLibrary},
                                                     {"own", AttentionChoice::kOwn}}),
      Bytes<FIELD(engine, Engine, host_memory)>("engine.host_memory", " (0 = what there is)"),
      Bytes<FIELD(engine, Engine, device_memory)>("engine.device_memory", " (0 = what there is)"),
      WeightBuffers(),
      Integer<FIELD(engine, Engine, gradient_slabs)>("engine.gradient_slabs", 0, 1 << 20,
                                                     " (0 = 4, or one a tile with clipping)"),
      Integer<FIELD(engine, Engine, micro_batches_per_sweep)>(
          "engine.micro_batches_per_sweep", 0, 1 << 24, " (0 = as many as the stash holds)"),
      Choice<FIELD(engine, Engine, stash)>("engine.stash",
                                           Words<StashPlace>{{"auto", StashPlace::kAuto},
                                                             {"device", StashPlace::kDevice},
                                                             {"host", StashPlace::kHost}}),
      Choice<FIELD(engine, Engine, recompute)>(
          "engine.recompute", Words<RecomputeMode>{{"auto", RecomputeMode::kAuto},
                                                   {"all", RecomputeMode::kAll},
                                                   {"none", RecomputeMode::kNone}}),
      Integer<FIELD(engine, Engine, threads)>("engine.threads", 0, 4096,
                                              " (0 = the processors this process may use)"),
      Integer<FIELD(engine, Engine, update_threads)>("engine.update_threads", 0, 4096,
                                                     " (0 = it shares compute's)"),
      Choice<FIELD(engine, Engine, update_device)>(
          "engine.update_device", Words<UpdateDevice>{{"auto", UpdateDevice::kAuto},
                                                      {"host", UpdateDevice::kHost},
                                                      {"device", UpdateDevice::kDevice}}),
      Number<FIELD(engine, Engine, link_gigabytes_per_second)>("engine.link_gigabytes_per_second",
                                                               {0, 1e6}, " (0 = unthrottled)"),
  };
  for (JobKey& key : keys) {
    key.may_change_on_resume =
        key.path == "training.steps" || key.path == "training.epochs" ||
        key.path == "training.eval_every" || absl::StartsWith(key.path, "checkpoint.") ||
        absl::StartsWith(key.path, "output.") || absl::StartsWith(key.path, "engine.");
  }
  return keys;
}

#undef FIELD

}  // namespace

const std::vector<JobKey>& JobKeys() {
  static const auto& keys = *new std::vector<JobKey>(MakeKeys());
  return keys;
}

std::vector<std::string> JobKeyPaths() {
  std::vector<std::string> paths;
  for (const JobKey& key : JobKeys()) paths.push_back(key.path);
  return paths;
}

const JobKey* FindJobKey(const std::string& path) {
  for (const JobKey& key : JobKeys()) {
    if (key.path == path) return &key;
  }
  return nullptr;
}

std::vector<std::string> JobSections() {
  std::vector<std::string> sections;
  for (const JobKey& key : JobKeys()) {
    const size_t dot = key.path.find('.');
    if (dot == std::string::npos) continue;
    const std::string section = key.path.substr(0, dot);
    if (sections.empty() || sections.back() != section) sections.push_back(section);
  }
  return sections;
}

bool IsJobSection(const std::string& path) {
  for (const std::string& section : JobSections()) {
    if (section == path) return true;
  }
  return false;
}

}  // namespace megatrain
