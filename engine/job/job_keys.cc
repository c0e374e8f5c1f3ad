#include "engine/job/job_keys.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/civil_time.h"
#include "engine/config/config_values.h"
#include "engine/job/data_file_keys.h"
#include "engine/job/device_name.h"
#include "engine/job/prompt_value.h"

namespace megatrain {
namespace {

constexpr int64_t kNoMax = std::numeric_limits<int64_t>::max();
constexpr bool kMayChange = true;  // in a resumed run, whose refusal lists them (resume_check.cc)

// The name becomes a directory's.
bool IsJobName(const std::string& name) { return IsPlainName(name, 100); }

// Patterns of tensor names. The longest name has some sixty characters.
constexpr size_t kPatternBytesMax = 200;
constexpr char kPatternRule[] = "^.{1,200}$";
constexpr char kPatternExpected[] =
    "a tensor name of at most 200 characters, in which * stands for any text";
constexpr char kPatternsExpected[] =
    "tensor names of at most 200 characters, in which * stands for any text, as in "
    "[model.embed_tokens.*]";
bool IsPattern(const std::string& text) { return !text.empty() && text.size() <= kPatternBytesMax; }

// The ranges of optimizer.learning_rate and weight_decay, and of those of groups.
constexpr NumberRange kLearningRates = {0, 1000}, kWeightDecays = {0, 1000};

ConfigValue GroupRate(std::optional<double>* field, const NumberRange& range) {
  return Optional(field, [&](double* rate) { return Number(rate, range); });
}

std::vector<ConfigKey> GroupKeys(JobSpec::Optimizer::Group* group) {
  return {
      {.path = "match",
       .value = Text(&group->match, kPatternExpected, kPatternRule, IsPattern),
       .help = "names of tensors, * stands for any text",
       .default_or_example = "\"model.layers.*.mlp.*\"",
       .has_default = false,
       .required_hint = "; name tensors, as in model.layers.*.mlp.*"},
      {.path = "learning_rate",
       .value = GroupRate(&group->learning_rate, kLearningRates),
       .help = "peak of the same schedule",
       .default_or_example = "1.0e-5",
       .has_default = false},
      {.path = "weight_decay",
       .value = GroupRate(&group->weight_decay, kWeightDecays),
       .help = "of the matrices among them",
       .default_or_example = "0",
       .has_default = false},
  };
}

std::optional<ValueError> CheckGroup(const JobSpec::Optimizer::Group& group) {
  if (group.learning_rate.has_value() || group.weight_decay.has_value()) return std::nullopt;
  return ValueError{"changes nothing; give learning_rate, weight_decay or both", "match", ""};
}

std::string GroupsText(const std::vector<JobSpec::Optimizer::Group>& groups) {
  std::string text = "[";
  for (JobSpec::Optimizer::Group group : groups) {
    absl::StrAppend(&text, text.size() == 1 ? "" : ", ", "{match(", group.match.size(),
                    "): ", group.match,
                    ", learning_rate: ", GroupRate(&group.learning_rate, kLearningRates).text(),
                    ", weight_decay: ", GroupRate(&group.weight_decay, kWeightDecays).text(), "}");
  }
  return text + "]";
}

std::vector<ConfigKey> ModelKeys(JobSpec::Model& model) {
  return {
      {.path = "model.path",
       .value = Path(&model.path, "the path of a Hugging Face model directory"),
       .help = "Hugging Face directory: config.json, *.safetensors, tokenizer.json",
       .default_or_example = "\"models/tiny\"",
       .has_default = false,
       .required_hint = "; name a Hugging Face model directory"},
      {"model.initialization",
       Choice<bool>(&model.random_initialization, {{"pretrained", false}, {"random", true}}),
       "weights of the directory, or random ones, which need config.json alone"},
  };
}

constexpr char kTemplatePattern[] = "^(auto|chatml|llama3|mistral|gemma|alpaca|.*\\.jinja)$";

bool IsTemplateName(const std::string& name) {
  for (const char* known : {"auto", "chatml", "llama3", "mistral", "gemma", "alpaca"}) {
    if (name == known) return true;
  }
  return absl::EndsWith(name, ".jinja");
}

bool IsDayOrEmpty(const std::string& text) {
  absl::CivilDay day;
  return text.empty() || (text.size() == 10 && absl::ParseCivilTime(text, &day) &&
                          absl::FormatCivilTime(day) == text);
}

ConfigValue DayValue(std::string* field) {
  ConfigValue value =
      Text(field, "a day as 2026-01-31", "^([0-9]{4}-[0-9]{2}-[0-9]{2})?$", IsDayOrEmpty);
  value.note = "\"\" = the day on which the data is first prepared";
  return value;
}

// In YAML true and false are booleans, and they are words of the choice here.
ConfigValue AddBosValue(AddBos* field) {
  ConfigValue value = Choice<AddBos>(
      field, {{"auto", AddBos::kAuto}, {"true", AddBos::kTrue}, {"false", AddBos::kFalse}});
  value.schema = {{"type", {"string", "boolean"}}, {"enum", {"auto", true, false}}};
  return value;
}

std::vector<ConfigKey> DataKeys(JobSpec::Data& data) {
  return {
      {.path = "data.train",
       .value = TrainFiles(&data.train),
       .help = "training data, one entry after the other, or mixed if they have weights; format: "
               "text, tokens, alpaca, sharegpt, messages or preference",
       .default_or_example = R"([{"path": "train.jsonl", "format": "alpaca"}])",
       .has_default = false,
       .required_hint = "; list the training files"},
      {"data.eval", EvalFiles(&data.eval),
       "evaluation files, in the same form; those with a name: have a loss of their own beside the "
       "loss of all"},
      {"data.eval_fraction", Number(&data.eval_fraction, {0, 1, true, false}),
       "fraction of the training sequences, the last ones, held out for evaluation; not beside "
       "eval"},
      {"data.sequence_length", Whole(&data.sequence_length, 2, int64_t{1} << 24),
       "tokens a sequence"},
      {"data.packing", Boolean(&data.packing),
       "several documents a sequence, which do not see each other; false = one, padded"},
      {"data.shuffle", Boolean(&data.shuffle), "random order of sequences; false = file order"},
      {"data.cache_directory",
       Path(&data.cache_directory, "a path", "data/ in the checkpoint directory"),
       "directory of tokenised data"},
      {"data.train_on", Choice(&data.train_on, {"assistant", "last", "all"}),
       "chat data: the loss is on the assistant's turns, the last of them, or the whole "
       "conversation"},
      {"data.train_on_prompt", Boolean(&data.train_on_prompt), "the same as train_on: all"},
      {"data.chat_template",
       Text(&data.chat_template,
            "auto, chatml, llama3, mistral, gemma, alpaca or a path to a .jinja", kTemplatePattern,
            IsTemplateName),
       "template that makes text of chat data; auto = the model directory's own; chatml, llama3, "
       "mistral, gemma or alpaca; or the path of a .jinja file"},
      {"data.template_date", DayValue(&data.template_date),
       "day that a chat template sees as the present one, as 2026-01-31"},
      {.path = "data.add_bos",
       .value = AddBosValue(&data.add_bos),
       .help = "beginning-of-text token before text; auto = as the tokenizer's own post-processor "
               "says",
       .default_or_example = R"("auto")"},
      {"data.on_bad_record",
       Choice<OnBadRecord>(&data.on_bad_record,
                           {{"fail", OnBadRecord::kFail}, {"skip", OnBadRecord::kSkip}}),
       "a record that cannot be read ends the job, or is left out, counted and named in the log"},
      {"data.tokenizer", Choice(&data.tokenizer, {"auto", "bytes"}),
       "what makes tokens; auto = tokenizer.json, else tokenizer.model; bytes = 256 bytes and 3 "
       "specials, needs no file"},
  };
}

std::vector<ConfigKey> TrainingKeys(JobSpec::Training& training) {
  return {
      {"training.objective",
       Choice<Objective>(&training.objective,
                         {{"causal", Objective::kCausal}, {"dpo", Objective::kDpo}}),
       "causal = the next token's loss; dpo = direct preference optimization, over pairs of chosen "
       "and rejected answers"},
      {"training.dpo_beta", Number(&training.dpo.beta, {0, 1e6, false, true}),
       "dpo: strength of the pull towards the reference, the model as the job begins"},
      {"training.dpo_loss",
       Choice<PreferenceLossKind>(&training.dpo.loss, {{"sigmoid", PreferenceLossKind::kSigmoid},
                                                       {"robust", PreferenceLossKind::kRobust},
                                                       {"hinge", PreferenceLossKind::kHinge},
                                                       {"ipo", PreferenceLossKind::kIpo}}),
       "dpo: loss of a pair, as loss_type of DPOTrainer in TRL"},
      {"training.dpo_label_smoothing", Number(&training.dpo.label_smoothing, {0, 0.5, true, false}),
       "dpo: probability that a pair is the wrong way round; for sigmoid and robust"},
      {"training.dpo_reference_free", Boolean(&training.dpo_reference_free),
       "dpo: no reference; log-probabilities count as they are"},
      {.path = "training.steps",
       .value = Whole(&training.steps, 1, 1000000000000),
       .help = "optimizer steps in all",
       .may_change = kMayChange,
       .default_or_example = absl::StrCat(kStepsDefault)},
      {.path = "training.epochs",
       .value = Number(&training.epochs, {0, 1e6, false, true}),
       .help = "passes over the training sequences, in place of steps; not both",
       .may_change = kMayChange,
       .default_or_example = "1",
       .has_default = false},
      {"training.global_batch", Whole(&training.global_batch, 1, 1 << 24),
       "sequences an optimizer step"},
      {"training.micro_batch", Whole(&training.micro_batch, 1, 1 << 24),
       "sequences a kernel call; divides global_batch"},
      {"training.gradient_shards", Whole(&training.gradient_shards, 1, 1024),
       "power of two: parts of the micro-batches whose gradients are summed apart and then added "
       "in "
       "pairs, so that any number of devices that divides it gives the same bits"},
      {"training.precision",
       Choice<Precision>(&training.precision,
                         {{"bf16", Precision::kBf16}, {"fp32", Precision::kFp32}}),
       "type of products and activations; masters and sums are FP32"},
      {"training.gradient_dtype",
       Choice<Precision>(&training.gradient_dtype,
                         {{"fp32", Precision::kFp32}, {"bf16", Precision::kBf16}}),
       "type of gradients on the bus and while they are held for clipping"},
      {"training.seed", Whole(&training.seed),
       "seed of random weights and of the order of sequences"},
      {"training.eval_every", Whole(&training.eval_every, 0, kNoMax, "only after the last step"),
       "steps between evaluations", kMayChange},
      {"training.keep_best", Boolean(&training.keep_best),
       "keep the checkpoint of the lowest eval_loss beside the newest ones; an evaluation that is "
       "the best so far is saved",
       kMayChange},
      {"training.stop_after_worse", Whole(&training.stop_after_worse, 0, 1000000000, "never"),
       "end after this many evaluations in a row without a new lowest eval_loss", kMayChange},
      {"training.skip_steps", Wholes(&training.skip_steps, 1, 1000000000000),
       "steps that make no update: their batch is left out, as one that gave a loss that is not "
       "finite",
       kMayChange},
      {.path = "training.router_auxiliary_loss",
       .value = Optional(&training.router_auxiliary_loss,
                         [](double* value) {
                           return Number(value, {0, 1000}, "no such loss");
                         }),
       .help = "coefficient of the loss that spreads the tokens of a micro-batch, padding aside, "
               "evenly over experts; without it the model's own (router_aux_loss_coef where "
               "config.json has output_router_logits: true)",
       .default_or_example = "0.001",
       .has_default = false},
      {"training.freeze",
       Texts(&training.freeze, kPatternsExpected, kPatternRule,
             [](const std::string& pattern) {
               return IsPattern(pattern) ? std::string() : kPatternsExpected;
             }),
       "names of tensors that are not trained, as in [model.embed_tokens.*, \"*.bias\"]: no "
       "gradient, no optimizer state"},
      {"training.sample_prompts", Prompts(&training.sample_prompts),
       "prompts that the model answers greedily at each evaluation, for report.tensorboard: texts, "
       "or conversations as {messages: [{role: user, content: Hello}]}",
       kMayChange},
      {"training.sample_tokens", Whole(&training.sample_tokens, 1, 1000000),
       "tokens of each of these answers at most", kMayChange},
  };
}

std::vector<ConfigKey> OptimizerKeys(JobSpec::Optimizer& optimizer) {
  return {
      // A choice of one, which needs no field.
      {"optimizer.type",
       OneOf(
           {"adamw"}, [](size_t) {}, [] { return size_t{0}; }),
       "the optimizer, as torch.optim.AdamW"},
      {"optimizer.learning_rate", Number(&optimizer.learning_rate, kLearningRates),
       "peak learning rate, reached at the end of the warmup"},
      {"optimizer.beta1", Number(&optimizer.beta1, {0, 1, true, false}),
       "decay of Adam's first moment at each step"},
      {"optimizer.beta2", Number(&optimizer.beta2, {0, 1, true, false}),
       "decay of Adam's second moment at each step"},
      // Zero would make 0/0 of an element whose gradients are all zero.
      {"optimizer.epsilon", Number(&optimizer.epsilon, {1e-30, 1}),
       "added to the square root of the second moment"},
      {"optimizer.weight_decay", Number(&optimizer.weight_decay, kWeightDecays),
       "decoupled weight decay; norms and biases, as transformers' Trainer tells them, have none"},
      {"optimizer.max_gradient_norm",
       Number(&optimizer.max_gradient_norm, {0, 1e30}, "no clipping"),
       "global norm that gradients are clipped to"},
      {"optimizer.groups", ListOf(&optimizer.groups, GroupKeys, CheckGroup, GroupsText),
       "tensors with a learning rate or weight decay of their own, as in [{match: "
       "\"model.layers.*.mlp.*\", learning_rate: 1.0e-5, weight_decay: 0}]; the first that matches "
       "counts"},
  };
}

std::vector<ConfigKey> ScheduleKeys(JobSpec::Schedule& schedule) {
  return {
      {"schedule.type",
       Choice<ScheduleType>(&schedule.type,
                            {{"cosine", ScheduleType::kCosine},
                             {"linear", ScheduleType::kLinear},
                             {"constant", ScheduleType::kConstant},
                             {"warmup_stable_decay", ScheduleType::kWarmupStableDecay}}),
       "course of the learning rate after the warmup"},
      {"schedule.warmup_steps", Whole(&schedule.warmup_steps, 0),
       "steps over which the learning rate rises from 0"},
      {"schedule.final_fraction", Number(&schedule.final_fraction, {0, 1}),
       "learning rate of the last step, as a fraction of the peak"},
      {"schedule.decay_fraction", Number(&schedule.decay_fraction, {0, 1}),
       "warmup_stable_decay: last fraction of the steps, over which the learning rate falls"},
  };
}

std::vector<ConfigKey> CheckpointKeys(JobSpec::Checkpoint& checkpoint) {
  return {
      {"checkpoint.directory",
       Path(&checkpoint.directory, "a path",
            "NAME/checkpoints; a daemon's job has one in the state directory"),
       "directory of checkpoints", kMayChange},
      {"checkpoint.every_steps", Whole(&checkpoint.every_steps, 0, kNoMax, "only at the end"),
       "steps between checkpoints", kMayChange},
      {"checkpoint.keep", Whole(&checkpoint.keep, 1), "newest checkpoints that are kept",
       kMayChange},
      {"checkpoint.shared", Boolean(&checkpoint.shared),
       "processes on several machines write into one directory; false = each machine into one of "
       "its own, what its processes hold, and `megatraind gather` joins the parts",
       kMayChange},
  };
}

std::vector<ConfigKey> OutputKeys(JobSpec::Output& output) {
  return {
      {"output.directory", Path(&output.directory, "a path", "none"),
       "Hugging Face directory that is written at the end", kMayChange},
  };
}

std::vector<ConfigKey> ReportKeys(JobSpec::Report& report) {
  return {
      {"report.tensorboard", Path(&report.tensorboard, "a path", "none"),
       "directory in which each run writes a TensorBoard event file", kMayChange},
  };
}

std::vector<ConfigKey> EngineKeys(JobSpec::Engine& engine) {
  return {
      {"engine.device", Text(&engine.device, kDeviceNames, kDevicePattern, IsDeviceName),
       "what computes; auto = the first GPU, else the cpu; or cpu, cuda, cuda:N", kMayChange},
      {"engine.devices", WholeOr("all", &engine.devices, 1, 1024),
       "devices of that kind that share each step and one copy of the model's state; all = those "
       "of "
       "the machine",
       kMayChange},
      {"engine.attention",
       Choice<AttentionChoice>(&engine.attention, {{"auto", AttentionChoice::kAuto},
                                                   {"library", AttentionChoice::kLibrary},
                                                   {"own", AttentionChoice::kOwn}}),
       "kernels of attention; auto = a library's (cuDNN) for the calls it takes, else our own; "
       "library or own = those alone",
       kMayChange},
      {"engine.host_memory", Bytes(&engine.host_memory, "what is free"),
       "limit on host memory, in bytes or as in 24GiB", kMayChange},
      {"engine.device_memory",
       Bytes(&engine.device_memory,
             "what is free (cpu: what keeping every activation needs, at most half of the rest)"),
       "limit on device memory, in bytes or as in 24GiB", kMayChange},
      // One buffer could not be loaded while it is computed with.
      {"engine.weight_buffers", Whole(&engine.weight_buffers, 2, 4096, "chosen by predicted time"),
       "tiles of weights on the device at a time; 0 = by predicted time", kMayChange},
      {"engine.gradient_slabs",
       Whole(&engine.gradient_slabs, 0, 1 << 20,
             "4, or one a tile with clipping or several sweeps"),
       "host buffers for gradients", kMayChange},
      {"engine.micro_batches_per_sweep",
       Whole(&engine.micro_batches_per_sweep, 0, 1 << 24,
             "by predicted time, or as many as the stash holds where no rates are known"),
       "micro batches that a layer computes before the next one is loaded", kMayChange},
      {"engine.stash",
       Choice<StashPlace>(&engine.stash, {{"auto", StashPlace::kAuto},
                                          {"device", StashPlace::kDevice},
                                          {"host", StashPlace::kHost}}),
       "where hidden states wait for the backward pass", kMayChange},
      {"engine.recompute",
       Choice<RecomputeMode>(&engine.recompute, {{"auto", RecomputeMode::kAuto},
                                                 {"all", RecomputeMode::kAll},
                                                 {"none", RecomputeMode::kNone}}),
       "activations that the backward pass computes again; auto = those the device cannot hold",
       kMayChange},
      {"engine.threads", Whole(&engine.threads, 0, 4096, "the processors this process may use"),
       "threads of the job", kMayChange},
      {"engine.update_threads", Whole(&engine.update_threads, 0, 4096, "it shares them"),
       "those of the threads that are set apart for the optimizer (cpu device)", kMayChange},
      {"engine.update_device",
       Choice<UpdateDevice>(&engine.update_device, {{"auto", UpdateDevice::kAuto},
                                                    {"host", UpdateDevice::kHost},
                                                    {"device", UpdateDevice::kDevice}}),
       "where AdamW runs, to the same bits; auto = by measured rates", kMayChange},
      {"engine.loads",
       Choice<WeightLoads>(&engine.loads, {{"auto", WeightLoads::kAuto},
                                           {"shards", WeightLoads::kShards},
                                           {"whole", WeightLoads::kWhole}}),
       "what each of several devices loads of a layer's weights: its shard, and the rest from the "
       "other devices, or all of them; to the same bits; auto = by measured rates",
       kMayChange},
      {"engine.link_gigabytes_per_second",
       Number(&engine.link_gigabytes_per_second, {0, 1e6}, "unthrottled"),
       "cpu device: throttles each direction to this, in GB/s (1e9 bytes), to rehearse a bus",
       kMayChange},
  };
}

}  // namespace

ConfigTable JobKeys(JobSpec* spec) {
  ConfigTable table = {
      "job file", "training.steps=50", "resume", "may be changed by a resumed run", {}};
  table.keys = {
      {"name",
       Text(&spec->name, "1 to 100 letters, digits, '-', '_' or '.', not beginning with '-' or '.'",
            "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$", IsJobName),
       "name of the job"},
  };
  std::array sections{ModelKeys(spec->model),       DataKeys(spec->data),
                      TrainingKeys(spec->training), OptimizerKeys(spec->optimizer),
                      ScheduleKeys(spec->schedule), CheckpointKeys(spec->checkpoint),
                      OutputKeys(spec->output),     ReportKeys(spec->report),
                      EngineKeys(spec->engine)};
  for (std::vector<ConfigKey>& section : sections) {
    std::move(section.begin(), section.end(), std::back_inserter(table.keys));
  }
  return table;
}

}  // namespace megatrain
