// Whole training steps on the GPU, through the path that jobs take: random weights, random tokens.
#ifndef MEGATRAIN_TESTS_BENCH_GPU_GPU_STEPS_H_
#define MEGATRAIN_TESTS_BENCH_GPU_GPU_STEPS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/engine.h"
#include "tests/bench/gpu/gpu_limits.h"

namespace megatrain {

struct GpuStep {
  std::string preset;  // of `init`
  int64_t sequence_length = 1024;
  int64_t micro_batch = 1, global_batch = 8;  // sequences
  Precision precision = Precision::kBf16;
  Precision gradient_dtype = Precision::kBf16;
  bool clipped = true;
  int64_t steps = 5;  // the first two are not counted: algorithms are chosen, kernels loaded
};

// What is run without being asked for anything else.
std::vector<GpuStep> DefaultGpuSteps();

// On the host's pool, which is reserved. Prints a line a step; one that does not fit says so and is
// no error. Models and tokens are written beneath `directory`.
absl::Status BenchGpuSteps(EngineHost& host, const GpuLimits& limits,
                           const std::vector<GpuStep>& steps, const std::string& directory);

// The longest sequence, in powers of two, of which a step of one fits, and that step.
absl::Status BenchLongestSequence(EngineHost& host, const GpuLimits& limits, GpuStep step,
                                  const std::string& directory);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_BENCH_GPU_GPU_STEPS_H_
