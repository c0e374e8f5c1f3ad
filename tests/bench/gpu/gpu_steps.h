// Whole training steps on the GPU, through the path that jobs take: random weights, random tokens.
#ifndef MEGATRAIN_TESTS_BENCH_GPU_GPU_STEPS_H_
#define MEGATRAIN_TESTS_BENCH_GPU_GPU_STEPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/engine.h"
#include "tests/bench/gpu/bench_results.h"
#include "tests/bench/gpu/gpu_limits.h"

namespace megatrain {

struct GpuStep {
  std::string preset;  // of `init`
  int64_t sequence_length = 1024;
  int64_t micro_batch = 1, global_batch = 8;  // sequences
  Precision precision = Precision::kBf16;
  Precision gradient_dtype = Precision::kBf16;
  bool clipped = true;
  UpdateDevice update_device = UpdateDevice::kAuto;  // or kHost
  int threads = 0;                                   // of the host; 0: all
  int devices = 1;                                   // GPUs that share it
  int64_t steps = 5;  // the first two are not counted: algorithms are chosen, kernels loaded
};

// 65,536 tokens, whose figures are those to be reached.
GpuStep Clipped7BStep();
GpuStep Clipped1500MStep();
GpuStep LongSequenceStep();            // 7B, 32,768 tokens
std::vector<GpuStep> OtherGpuSteps();  // not clipped, smaller, FP32

// Begins the names of the step's results: "qwen2.5-7b bf16, 16 x 4096 tokens, clipped".
std::string GpuStepName(const GpuStep& step);
inline constexpr char kGpuStepSpeed[] = ": speed";  // ends that of its tokens a second

// Adds the step's results as soon as a step is counted, and anew with each that follows. A host
// without a pool reserves what the step plans. Models and tokens are written beneath `directory`.
// ResourceExhausted: it does not fit this machine. DeadlineExceeded: the results' item was out of
// time before a step was counted; one that is under way is finished first.
absl::Status BenchGpuStep(EngineHost& host, const GpuLimits& limits, const GpuStep& step,
                          const std::string& directory, BenchResults& results);

// The longest sequence, in powers of two, of which a step of one fits, and that step. REQUIRES: the
// host has a pool.
absl::Status BenchLongestSequence(EngineHost& host, const GpuLimits& limits, GpuStep step,
                                  const std::string& directory, BenchResults& results);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_BENCH_GPU_GPU_STEPS_H_
