// The content of a job file, with its defaults. Field names and meanings are those of the job file;
// README.md in this directory describes them.
#ifndef MEGATRAIN_ENGINE_JOB_JOB_SPEC_H_
#define MEGATRAIN_ENGINE_JOB_JOB_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/kernel_choices.h"
#include "engine/job/data_format.h"

namespace megatrain {

enum class Precision { kBf16, kFp32 };
enum class ScheduleType { kCosine, kLinear, kConstant, kWarmupStableDecay };
enum class StashPlace { kAuto, kDevice, kHost };
enum class RecomputeMode { kAuto, kAll, kNone };
enum class UpdateDevice { kAuto, kHost, kDevice };
enum class WeightLoads { kAuto, kShards, kWhole };
enum class Objective { kCausal, kDpo };
enum class AddBos { kAuto, kTrue, kFalse };
enum class OnBadRecord { kFail, kSkip };

// An entry of data.train or data.eval, or one of the files that it names (data_paths.h).
struct DataFile {
  std::string path;  // a file, a directory or a glob; absolute once a job file is parsed
  DataFormat format = DataFormat::kText;
  std::string dtype;      // "uint16" or "uint32" for tokens in .bin, else empty
  double weight = 0;      // share of the training mix; 0 = not given, then no entry has one
  std::string name = "";  // data.eval only: the set that the file belongs to; empty: none
};

// A text for a model to go on from, or a conversation for it to answer.
struct Prompt {
  std::string text;
  // A JSON object with the key `prompt` or `messages`, in place of a text; else empty.
  std::string record;
};

struct JobSpec {
  std::string name = "demo";
  struct Model {
    std::string path;
    bool random_initialization = false;  // initialization: pretrained | random
  } model;
  struct Data {
    std::vector<DataFile> train;
    std::vector<DataFile> eval;
    double eval_fraction = 0.0;
    int64_t sequence_length = 1024;
    bool packing = true;
    bool shuffle = true;
    std::string cache_directory;         // empty = data/ in checkpoint.directory
    std::string train_on = "assistant";  // assistant | last | all
    bool train_on_prompt = false;        // true if and only if train_on is "all"
    std::string chat_template = "auto";  // auto, the name of a built-in one, or an absolute path
    std::string template_date;           // YYYY-MM-DD; empty = the day the data is first prepared
    AddBos add_bos = AddBos::kAuto;
    OnBadRecord on_bad_record = OnBadRecord::kFail;
    std::string tokenizer = "auto";  // auto | bytes
  } data;
  struct Training {
    Objective objective = Objective::kCausal;
    PreferenceObjective dpo;
    bool dpo_reference_free = false;
    int64_t steps = 0;  // 0 = not given; then epochs is
    double epochs = 0;  // 0 = not given
    int64_t global_batch = 8;
    // The parts of a step's micro-batches whose gradients are summed apart and then added in pairs;
    // a power of two. Any number of devices that divides it gives the same bits.
    int64_t gradient_shards = 1;
    int64_t micro_batch = 2;
    Precision precision = Precision::kBf16;
    Precision gradient_dtype = Precision::kFp32;
    uint64_t seed = 42;
    int64_t eval_every = 50;  // 0 = only after the last step
    bool keep_best = false;
    int64_t stop_after_worse = 0;  // evaluations; 0 = never
    // The coefficient of the loss that spreads tokens evenly over experts. nullopt: the model's own
    // (ExpertsDescription::auxiliary_loss).
    std::optional<double> router_auxiliary_loss;
    std::vector<int64_t> skip_steps;     // steps whose batch is left out
    std::vector<std::string> freeze;     // patterns of tensor names (plan/trained_tensors.h)
    std::vector<Prompt> sample_prompts;  // answered at each evaluation
    int64_t sample_tokens = 64;          // of each of those answers at most
  } training;
  struct Optimizer {
    double learning_rate = 3e-4;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double epsilon = 1e-8;
    double weight_decay = 0.1;
    double max_gradient_norm = 1.0;  // 0 = no clipping
    // The rates of tensors whose names match a pattern. The first group that matches a tensor
    // counts. A rate that the group does not give is that of the optimizer.
    struct Group {
      std::string match;
      std::optional<double> learning_rate, weight_decay;
    };
    std::vector<Group> groups;
  } optimizer;
  struct Schedule {
    ScheduleType type = ScheduleType::kCosine;
    int64_t warmup_steps = 10;
    double final_fraction = 0.1;
    double decay_fraction = 0.1;  // warmup_stable_decay
  } schedule;
  struct Checkpoint {
    std::string directory;
    int64_t every_steps = 100;  // 0 = only at the end, when stopped or asked, and for keep_best
    int64_t keep = 2;
    bool shared = true;  // by all processes; false: each machine has a directory of its own
  } checkpoint;
  struct Output {
    std::string directory;  // empty = no export
  } output;
  struct Report {
    std::string tensorboard;  // a directory of TensorBoard event files; empty = none
  } report;
  struct Engine {
    std::string device = "auto";  // auto | cpu | cuda | cuda:N
    int64_t devices = 1;          // that share each step; 0 = all of that kind
    AttentionChoice attention = AttentionChoice::kAuto;
    int64_t host_memory = 0;     // bytes; 0 = all that is free
    int64_t device_memory = 0;   // bytes; 0 = all that is free, cpu: as the plan chooses
    int64_t weight_buffers = 2;  // 0 = chosen by predicted time, or 2 if rates are not known
    // 0 = 4, or one for each tile with clipping or several sweeps
    int64_t gradient_slabs = 0;
    int64_t micro_batches_per_sweep = 0;  // 0 = chosen by the plan
    StashPlace stash = StashPlace::kAuto;
    RecomputeMode recompute = RecomputeMode::kAuto;
    int64_t threads = 0;  // including update_threads; 0 = as many as the host allows
    // Threads for the optimizer alone, on the cpu device; 0 = the optimizer shares those of
    // compute.
    int64_t update_threads = 0;
    // The place where AdamW runs. kAuto divides it so that the predicted step is shortest. On the
    // cpu device, and if rates are not known, it runs on the host.
    UpdateDevice update_device = UpdateDevice::kAuto;
    // Each of several devices loads its shard of a tile and gathers the rest from the others, or
    // loads the whole tile. kAuto takes the way for which the plan predicts a shorter step, or
    // shards if the rate between devices is not known.
    WeightLoads loads = WeightLoads::kAuto;
    double link_gigabytes_per_second = 0;  // cpu device; 0 = unthrottled
  } engine;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_JOB_SPEC_H_
