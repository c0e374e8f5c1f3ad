#include "tests/bench/gpu/gpu_steps.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/model/hf_directory.h"

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
  MT_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(model));
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
  return spec;
}

// The counted steps; abandoned behind the last one, so that nothing is saved.
absl::StatusOr<std::vector<StepRecord>> Train(EngineHost& host, const JobSpec& spec) {
  std::vector<StepRecord> records;
  TrainingControl control;
  TrainingObserver observer;
  observer.step = [&](const StepRecord& record) {
    if (record.step > kUncountedSteps) records.push_back(record);
    if (record.step == spec.training.steps) control.Cancel();
  };
  MT_RETURN_IF_ERROR(RunTraining(host, spec, {}, &control, observer).status());
  return records;
}

void Print(const GpuStep& step, const GpuLimits& limits, std::vector<StepRecord> records) {
  std::sort(records.begin(), records.end(), [](const StepRecord& a, const StepRecord& b) {
    return a.step_seconds < b.step_seconds;
  });
  const StepRecord& r = records[records.size() / 2];
  const LaneSeconds& busy = r.lane_busy_seconds;
  const double busiest = std::max({busy.h2d, busy.compute, busy.d2h, busy.update});
  // Exactly clipped updates wait for the norm, behind the backward pass, and have the next forward
  // pass to hide in (ARCHITECTURE.md, "What bounds a step").
  const double forward = r.forward_seconds, backward = busy.compute - forward;
  const double bound =
      step.clipped ? std::max(busiest, backward + std::max(forward, busy.update)) : busiest;
  const DType dtype = step.precision == Precision::kBf16 ? DType::kBF16 : DType::kF32;
  std::printf(
      "%s %s, %lld x %lld tokens, clipping %s\n"
      "  step %.3f s, %.0f tokens/s, %.1f TFLOP/s (6 N tokens), %.1f%% of the products' rate\n"
      "  busy: h2d %.3f s, compute %.3f s, d2h %.3f s, update %.3f s; step over busiest lane %.3f, "
      "over its "
      "bound %.3f\n"
      "  link while busy: %.1f GB/s to the device, %.1f back; device %s, host %s\n",
      step.preset.c_str(), DTypeName(dtype), static_cast<long long>(step.global_batch),
      static_cast<long long>(step.sequence_length), step.clipped ? "on" : "off", r.step_seconds,
      r.tokens_per_second, r.model_flops_per_second / 1e12,
      100 * r.model_flops_per_second / limits.flops_per_second(dtype), busy.h2d, busy.compute,
      busy.d2h, busy.update, r.step_seconds / busiest, r.step_seconds / bound,
      static_cast<double>(r.h2d_bytes) / std::max(busy.h2d, 1e-9) / 1e9,
      static_cast<double>(r.d2h_bytes) / std::max(busy.d2h, 1e-9) / 1e9,
      FormatBytesShort(r.device_bytes).c_str(), FormatBytesShort(r.host_bytes).c_str());
  std::fflush(stdout);
}

absl::Status Bench(EngineHost& host, const GpuLimits& limits, const GpuStep& step,
                   const std::string& directory) {
  MT_ASSIGN_OR_RETURN(const JobSpec spec, MakeJob(step, directory));
  const absl::StatusOr<std::vector<StepRecord>> records = Train(host, spec);
  std::error_code ignored;
  fs::remove_all(spec.checkpoint.directory, ignored);
  fs::remove_all(spec.data.cache_directory, ignored);
  if (absl::IsResourceExhausted(records.status())) {
    std::printf("%s, sequences of %lld: does not fit this machine\n", step.preset.c_str(),
                static_cast<long long>(step.sequence_length));
    return absl::OkStatus();
  }
  MT_RETURN_IF_ERROR(records.status());
  Print(step, limits, *records);
  return absl::OkStatus();
}

}  // namespace

std::vector<GpuStep> DefaultGpuSteps() {
  std::vector<GpuStep> steps;
  for (const bool clipped : {false, true}) {
    steps.push_back(
        {.preset = "qwen2.5-0.5b", .micro_batch = 8, .global_batch = 64, .clipped = clipped});
    steps.push_back({.preset = "qwen2.5-1.5b",
                     .sequence_length = 4096,
                     .micro_batch = 2,
                     .global_batch = 16,
                     .clipped = clipped});
    // The figures that are to be reached are of this one.
    steps.push_back({.preset = "qwen2.5-7b",
                     .sequence_length = 4096,
                     .micro_batch = 2,
                     .global_batch = 16,
                     .clipped = clipped});
  }
  steps.push_back({.preset = "qwen2.5-7b", .sequence_length = 32768, .global_batch = 2});
  steps.push_back({.preset = "qwen2.5-1.5b",
                   .micro_batch = 8,
                   .global_batch = 64,
                   .precision = Precision::kFp32,
                   .gradient_dtype = Precision::kFp32});
  return steps;
}

absl::Status BenchGpuSteps(EngineHost& host, const GpuLimits& limits,
                           const std::vector<GpuStep>& steps, const std::string& directory) {
  for (const GpuStep& step : steps) {
    MT_RETURN_IF_ERROR(Bench(host, limits, step, directory));
  }
  return absl::OkStatus();
}

absl::Status BenchLongestSequence(EngineHost& host, const GpuLimits& limits, GpuStep step,
                                  const std::string& directory) {
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
    std::printf("%s: no sequence fits this machine\n", step.preset.c_str());
    return absl::OkStatus();
  }
  step.sequence_length = *longest;
  std::printf("the longest sequence: %lld tokens\n", static_cast<long long>(*longest));
  return Bench(host, limits, step, directory);
}

}  // namespace megatrain
