#include "tests/bench/gpu/gpu_steps.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/hf/config_json.h"
#include "engine/hf/hf_init.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kUncountedSteps = 2;

// A model directory with its config.json alone, and tokens for all steps. `positions` is what the
// model is to have at least: shapes do not depend on it.
absl::StatusOr<JobSpec> MakeJob(const GpuStep& step, const std::string& directory) {
  const std::string model = absl::StrCat(directory, "/", step.preset);
  if (!fs::exists(model)) {
    MT_RETURN_IF_ERROR(InitializeHfDirectory(step.preset, /*seed=*/1, /*config_only=*/true, model));
  }
  MT_ASSIGN_OR_RETURN(const ModelDescription config, ReadModelDescription(model));
  if (step.sequence_length > config.max_positions) {
    return absl::OutOfRangeError(
        absl::StrCat(step.preset, " has ", config.max_positions, " positions"));
  }
  const std::string tokens = absl::StrCat(directory, "/tokens.bin");
  std::vector<uint32_t> ids(
      static_cast<size_t>(step.sequence_length * step.global_batch * step.steps));
  std::mt19937 random(1);
  for (uint32_t& id : ids) id = static_cast<uint32_t>(random() % config.vocabulary);
  std::ofstream file(tokens, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(ids.data()),
             static_cast<std::streamsize>(ids.size() * sizeof(ids[0])));
  file.close();
  if (!file) return absl::InternalError(absl::StrCat(tokens, ": cannot be written"));

  JobSpec spec;
  spec.name = "bench";
  spec.model.path = model;
  spec.model.random_initialization = true;
  spec.data.train = {{tokens, DataFormat::kTokens, "uint32"}};
  spec.data.sequence_length = step.sequence_length;
  spec.data.shuffle = false;
  spec.data.cache_directory = directory + "/cache";
  spec.training.steps = step.steps;
  spec.training.global_batch = step.global_batch;
  spec.training.micro_batch = step.micro_batch;
  spec.training.precision = step.precision;
  spec.training.gradient_dtype = step.gradient_dtype;
  spec.optimizer.max_gradient_norm = step.clipped ? 1.0 : 0.0;
  spec.checkpoint.directory = directory + "/checkpoints";
  spec.checkpoint.every_steps = 0;
  spec.engine.update_device = step.update_device;
  spec.engine.threads = step.threads;
  spec.engine.devices = step.devices;
  return spec;
}

// Adds the median step so far. `predicted_seconds` is the plan's; 0 if it has none.
absl::Status AddStep(const GpuStep& step, const GpuLimits& limits, double predicted_seconds,
                     std::vector<StepRecord> records, BenchResults& results) {
  std::sort(records.begin(), records.end(), [](const StepRecord& a, const StepRecord& b) {
    return a.step_seconds < b.step_seconds;
  });
  const StepRecord& r = records[records.size() / 2];
  const LaneSeconds& busy = r.lane_busy_seconds;
  const double busiest = std::max({busy.h2d, busy.compute, busy.d2h, busy.update, busy.collective});
  // Exactly clipped updates wait for the norm, behind the backward pass, and have the next forward
  // pass to hide in (ARCHITECTURE.md, "What bounds a step").
  const double forward = r.forward_seconds, backward = busy.compute - forward;
  const double bound =
      step.clipped ? std::max(busiest, backward + std::max(forward, busy.update)) : busiest;
  const DType dtype = step.precision == Precision::kBf16 ? DType::kBF16 : DType::kF32;
  const std::string name = GpuStepName(step);
  MT_RETURN_IF_ERROR(results.Add(
      absl::StrCat(name, kGpuStepSpeed), r.tokens_per_second, "tokens/s",
      absl::StrFormat(
          "step %.3f s, %.1f TFLOP/s (6 N tokens), %.1f%% of the products' "
          "rate; median of %d",
          r.step_seconds, r.model_flops_per_second / 1e12,
          100 * r.model_flops_per_second / (limits.flops_per_second(dtype) * step.devices),
          records.size())));
  MT_RETURN_IF_ERROR(results.Add(
      absl::StrCat(name, ": step over its bound"), r.step_seconds / bound, "",
      absl::StrFormat("over its busiest lane %.3f; busy: h2d %.3f s, compute %.3f s (forward %.3f "
                      "s), d2h %.3f s, update %.3f s, device update %.3f s, exchange %.3f s",
                      r.step_seconds / busiest, busy.h2d, busy.compute, forward, busy.d2h,
                      busy.update, busy.device_update, busy.collective)));
  if (predicted_seconds > 0) {
    MT_RETURN_IF_ERROR(results.Add(absl::StrCat(name, ": step over the plan's"),
                                   r.step_seconds / predicted_seconds, "",
                                   absl::StrFormat("planned %.3f s", predicted_seconds)));
  }
  const auto by_operation = [](std::string* out, const std::pair<const std::string, double>& of) {
    absl::StrAppendFormat(out, "%s %.3f s", of.first, of.second);
  };
  MT_RETURN_IF_ERROR(results.Note(absl::StrCat(name, ": compute"),
                                  absl::StrJoin(r.compute_seconds, ", ", by_operation)));
  // Updates on the device use the link beside the lanes of copies. Bytes are those of all devices.
  return results.Note(
      absl::StrCat(name, ": traffic and memory"),
      absl::StrFormat("%.1f GB to %s, %.1f GB back; device %s, host %s",
                      static_cast<double>(r.h2d_bytes) / step.devices / 1e9,
                      step.devices > 1 ? "each device" : "the device",
                      static_cast<double>(r.d2h_bytes) / step.devices / 1e9,
                      FormatBytesShort(r.device_bytes), FormatBytesShort(r.host_bytes)));
}

// Abandoned behind the last step, so that nothing is saved, or when the item is out of time.
absl::Status Train(EngineHost& host, const JobSpec& spec, const GpuStep& step,
                   const GpuLimits& limits, BenchResults& results) {
  std::vector<StepRecord> records;
  absl::Status added;
  // The plan is told before the step, so that the two can be compared. It takes the budget of now:
  // there may be no pool yet.
  std::vector<int> on(static_cast<size_t>(step.devices));
  std::iota(on.begin(), on.end(), 0);
  EngineBudget budget = {.devices = host.devices(), .rates = host.rates()};
  MT_ASSIGN_OR_RETURN(budget.memory, host.BudgetNow(on));
  MT_ASSIGN_OR_RETURN(const PlanReport plan, PlanTraining(spec, budget, PosixFileSystem()));
  std::printf("%s", plan.table.c_str());
  const double predicted = plan.choice.predicted.step_seconds;
  std::string activity;
  TrainingControl control;
  const auto seconds = [begin = absl::Now()] { return absl::ToDoubleSeconds(absl::Now() - begin); };
  const Overloaded note = {[&](const RunMessage& message) {
                             std::printf("  %.1f s: %s\n", seconds(), message.line.c_str());
                             std::fflush(stdout);
                           },
                           [&](const StepRecord& record) {
                             std::printf("  %.1f s: step %lld took %.3f s, loss %.4f\n", seconds(),
                                         static_cast<long long>(record.step), record.step_seconds,
                                         record.loss);
                             std::fflush(stdout);
                             if (record.step > kUncountedSteps) {
                               records.push_back(record);
                               added.Update(AddStep(step, limits, predicted, records, results));
                             }
                             if (record.step == spec.training.steps || results.out_of_time())
                               control.Cancel();
                           },
                           [&](const TrainingActivity& now) {
                             if (now.what == activity) return;
                             activity = now.what;
                             if (activity.empty()) return;  // steps follow
                             std::printf("  %.1f s: %s\n", seconds(), activity.c_str());
                             std::fflush(stdout);
                           },
                           [](const auto&) {}};
  MT_RETURN_IF_ERROR(RunTraining(host, spec, {}, &control, [&](const RunEvent& event) {
                       std::visit(note, event);
                     }).status());
  MT_RETURN_IF_ERROR(added);
  if (records.empty()) {
    return absl::DeadlineExceededError(
        absl::StrCat(GpuStepName(step), ": out of time before a step was counted"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string GpuStepName(const GpuStep& step) {
  return absl::StrCat(step.preset, " ", step.precision == Precision::kBf16 ? "bf16" : "fp32", ", ",
                      step.global_batch, " x ", step.sequence_length, " tokens, ",
                      step.clipped ? "clipped" : "not clipped",
                      step.update_device == UpdateDevice::kHost ? ", AdamW on the host" : "",
                      step.threads > 0 ? absl::StrCat(", ", step.threads, " threads") : "",
                      step.devices > 1 ? absl::StrCat(", ", step.devices, " GPUs") : "");
}

GpuStep Clipped7BStep() {
  return {.preset = "qwen2.5-7b", .sequence_length = 4096, .micro_batch = 2, .global_batch = 16};
}

GpuStep Clipped1500MStep() {
  return {.preset = "qwen2.5-1.5b", .sequence_length = 4096, .micro_batch = 2, .global_batch = 16};
}

GpuStep LongSequenceStep() {
  return {.preset = "qwen2.5-7b", .sequence_length = 32768, .global_batch = 2};
}

std::vector<GpuStep> OtherGpuSteps() {
  std::vector<GpuStep> steps;
  for (const bool clipped : {false, true}) {
    steps.push_back(
        {.preset = "qwen2.5-0.5b", .micro_batch = 8, .global_batch = 64, .clipped = clipped});
  }
  for (GpuStep step : {Clipped1500MStep(), Clipped7BStep()}) {
    step.clipped = false;
    steps.push_back(step);
  }
  steps.push_back({.preset = "qwen2.5-1.5b",
                   .micro_batch = 8,
                   .global_batch = 64,
                   .precision = Precision::kFp32,
                   .gradient_dtype = Precision::kFp32});
  return steps;
}

absl::Status BenchGpuStep(EngineHost& host, const GpuLimits& limits, const GpuStep& step,
                          const std::string& directory, BenchResults& results) {
  MT_ASSIGN_OR_RETURN(const JobSpec spec, MakeJob(step, directory));
  const absl::Status status = Train(host, spec, step, limits, results);
  std::error_code ignored;
  fs::remove_all(spec.checkpoint.directory, ignored);
  fs::remove_all(spec.data.cache_directory, ignored);
  if (!status.ok()) {
    MT_RETURN_IF_ERROR(results.Note(absl::StrCat(GpuStepName(step), ": not measured"),
                                    std::string(status.message())));
  }
  return status;
}

absl::Status BenchLongestSequence(EngineHost& host, const GpuLimits& limits, GpuStep step,
                                  const std::string& directory, BenchResults& results) {
  std::optional<int64_t> longest;
  for (step.micro_batch = step.global_batch = 1;; step.sequence_length *= 2) {
    const absl::StatusOr<JobSpec> spec = MakeJob(step, directory);
    if (absl::IsOutOfRange(spec.status())) {
      std::printf("%s\n", std::string(spec.status().message()).c_str());
      break;
    }
    MT_RETURN_IF_ERROR(spec.status());
    MT_ASSIGN_OR_RETURN(const PlanReport plan,
                        PlanTraining(*spec, host.budget(), PosixFileSystem()));
    if (!plan.fits) break;
    longest = step.sequence_length;
  }
  if (!longest.has_value()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(step.preset, ": no sequence fits this machine"));
  }
  step.sequence_length = *longest;
  MT_RETURN_IF_ERROR(results.Add("the longest sequence", static_cast<double>(*longest), "tokens"));
  return BenchGpuStep(host, limits, step, directory, results);
}

}  // namespace megatrain
