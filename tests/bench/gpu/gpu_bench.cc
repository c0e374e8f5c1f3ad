// gpu_bench [--out DIR] [--seconds N] [--pool SIZE] ITEM...: what a GPU can do, and how close the
// kernels and whole training steps come to it.
//
//   info     the card, the driver, the libraries and where they lie, the host; exit code 3 if there
//            is no GPU that can be used, else 4 without cuDNN, 8 without NCCL, 12 without both
//   limits   the card's, its link's and the host memory's rates, which the rest is held against
//   7b       the clipped step of 7 billion parameters, whose figures are those to be reached
//   kernels  each kernel at that model's shapes
//   1.5b     the clipped step of 1.5 billion parameters
//   32k      7 billion parameters, sequences of 32,768 tokens
//   exchange what GPUs receive from each other by NCCL, over what copies between them reach
//   devices  the clipped step of 1.5 billion parameters on one GPU, on two and on all
//   steps    those that are not clipped, 0.5 billion parameters, FP32
//   long     the longest sequence that fits
//
// --out     keeps results in DIR/results.json and DIR/results.md, both as soon as they are known;
//           an item that finds the limits there does not measure them again
// --seconds for each item: what is under way then is finished, nothing more is begun
// --pool    host memory for the steps, as 105GiB; else what a step plans, of what is free
//
// gpu_bench record --out DIR PHASE STEP OUTCOME SECONDS [DETAIL] adds what tests/gpu.sh saw.
//
// The temporary directory holds models and tokens (megabytes). MEGATRAIN_TEST_SIZES=small: sizes
// that an emulation has done in seconds.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/engine.h"
#include "tests/bench/gpu/bench_results.h"
#include "tests/bench/gpu/gpu_info.h"
#include "tests/bench/gpu/gpu_items.h"
#include "tests/gpu/gpu_under_test.h"

namespace megatrain {
namespace {

constexpr int kUsageCode = 2, kNoGpuCode = 3;
constexpr int kNoCudnnCode = 4, kNoNcclCode = 8;  // added

int Usage() {
  std::fprintf(stderr,
               "usage: gpu_bench [--out DIR] [--seconds N] [--pool SIZE] "
               "info|limits|7b|kernels|1.5b|32k|exchange|devices|steps|long...\n"
               "       gpu_bench record --out DIR PHASE STEP OUTCOME SECONDS [DETAIL]\n");
  return kUsageCode;
}

int Failed(const absl::Status& status) {
  std::fprintf(stderr, "gpu_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}

struct Arguments {
  std::string out;
  GpuItemOptions options;
  std::vector<std::string> words;
};

// False: not understood.
bool Parse(int argc, char** argv, Arguments* arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word.rfind("--", 0) != 0) {
      arguments->words.push_back(word);
      continue;
    }
    if (++i == argc) return false;
    if (word == "--out") {
      arguments->out = argv[i];
    } else if (word == "--seconds") {
      if (!absl::SimpleAtod(argv[i], &arguments->options.seconds_max)) return false;
    } else if (word == "--pool") {
      const absl::StatusOr<int64_t> bytes = ParseBytes(argv[i]);
      if (!bytes.ok() || *bytes <= 0) return false;
      arguments->options.pool_bytes = *bytes;
    } else {
      return false;
    }
  }
  return !arguments->words.empty();
}

int Record(const Arguments& arguments, BenchResults& results) {
  const std::vector<std::string>& words = arguments.words;
  double seconds = 0;
  if (words.size() < 5 || words.size() > 6 || arguments.out.empty() ||
      !absl::SimpleAtod(words[4], &seconds)) {
    return Usage();
  }
  const absl::Status status =
      results.AddStep(words[1], words[2], words[3], seconds, words.size() > 5 ? words[5] : "");
  return status.ok() ? 0 : Failed(status);
}

int Info(BenchResults& results) {
  const absl::StatusOr<GpuMachine> machine = DescribeGpuMachine(results);
  if (machine.ok()) {
    return (machine->cudnn ? 0 : kNoCudnnCode) + (machine->nccl ? 0 : kNoNcclCode);
  }
  const absl::Status& status = machine.status();
  std::fprintf(stderr, "gpu_bench: %s\n", std::string(status.message()).c_str());
  const bool missing =
      absl::IsNotFound(status) || absl::IsUnavailable(status) || absl::IsFailedPrecondition(status);
  return missing ? kNoGpuCode : 1;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  if (!Parse(argc, argv, &arguments)) return Usage();
  absl::StatusOr<BenchResults> results = BenchResults::Open(arguments.out);
  if (!results.ok()) return Failed(results.status());
  const std::vector<std::string>& words = arguments.words;
  if (words[0] == "record") return Record(arguments, *results);
  if (words[0] == "info") return words.size() == 1 ? Info(*results) : Usage();
  for (const std::string& word : words) {
    if (!IsGpuItem(word)) return Usage();
  }
  // Each for itself: what comes after one that fails may not.
  int code = 0;
  for (const std::string& word : words) {
    const absl::Status status = RunGpuItem(word, arguments.options, *results);
    if (!status.ok()) code = Failed(status);
  }
  return code;
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) {
  const int code = megatrain::Main(argc, argv);
  megatrain::CloseCudaUnderTest();
  return code;
}
