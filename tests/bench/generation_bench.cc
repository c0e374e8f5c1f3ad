// Generation with streamed weights: the tokens per second of 32 prompts over those of one.
//   bazel run //tests/bench:generation_bench -- [PRESET] [ROUNDS] [SHORT] [LONG] [GB_PER_SECOND...]
// On the cpu device, where the stream of weights is a copy in memory. It is also throttled to the
// rates of links that it dominates on; 0 is no throttle. A rate is that of the tokens between the
// ends of short and of long answers, so that neither loading nor the pass of the prompts counts.
// Rounds of both batches are interleaved, and medians count. Exits 1 if a throttled ratio is below
// 20.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/engine.h"
#include "engine/hf/hf_init.h"
#include "tests/bench/median.h"

namespace megatrain {
namespace {

constexpr int kBatch = 32;
constexpr double kBound = 20;

struct Setting {
  std::string model;
  int64_t short_tokens = 4, long_tokens = 20;
  double link = 0;
};

absl::StatusOr<double> Seconds(const Setting& setting, int prompts, int64_t tokens) {
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<EngineHost> host,
                      EngineHost::Create({.device = "cpu", .open_gpu = nullptr}));
  GenerateOptions options;
  for (int i = 0; i < prompts; ++i) {
    options.prompts.push_back({absl::StrCat("Prompt number ", i, " of some"), ""});
  }
  options.tokens = tokens;
  options.temperature = 0;
  options.tokenizer = "bytes";
  options.engine.link_gigabytes_per_second = setting.link;
  bool whole = true;
  GenerateSink sink;
  sink.answer = [&](size_t, const GeneratedText& answer) { whole &= answer.tokens == tokens; };
  const auto start = std::chrono::steady_clock::now();
  MT_RETURN_IF_ERROR(Generate(*host, setting.model, options, sink));
  if (!whole) return absl::InternalError("an answer ended early; use another preset");
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Tokens per second of all answers together.
absl::StatusOr<double> Rate(const Setting& setting, int prompts) {
  MT_ASSIGN_OR_RETURN(const double longer, Seconds(setting, prompts, setting.long_tokens));
  MT_ASSIGN_OR_RETURN(const double shorter, Seconds(setting, prompts, setting.short_tokens));
  return static_cast<double>(prompts * (setting.long_tokens - setting.short_tokens)) /
         (longer - shorter);
}

absl::StatusOr<bool> Measure(const Setting& setting, int rounds) {
  std::map<int, std::vector<double>> rates;
  for (int round = 0; round < rounds; ++round) {
    for (const int prompts : {1, kBatch}) {
      MT_ASSIGN_OR_RETURN(rates[prompts].emplace_back(), Rate(setting, prompts));
    }
  }
  const double one = Median(rates[1]), many = Median(rates[kBatch]), ratio = many / one;
  const bool missed = setting.link > 0 && ratio < kBound;
  std::printf("%s link %g GB/s: batch %d over batch 1: %.1f; %.2f and %.2f tokens/s\n",
              missed ? "MISSED" : "ok    ", setting.link, kBatch, ratio, many, one);
  std::fflush(stdout);
  return !missed;
}

absl::StatusOr<bool> Run(int count, char** arguments) {
  const auto argument = [&](int i, const char* otherwise) {
    return std::string(i < count ? arguments[i] : otherwise);
  };
  const std::string directory =
      (std::filesystem::temp_directory_path() / absl::StrCat("megatrain-bench-", ::getpid()))
          .string();
  Setting setting;
  setting.model = directory;
  const int rounds = std::atoi(argument(2, "3").c_str());
  setting.short_tokens = std::atoi(argument(3, "4").c_str());
  setting.long_tokens = std::atoi(argument(4, "20").c_str());
  std::vector<double> links;
  for (int i = 5; i < count; ++i) links.push_back(std::atof(arguments[i]));
  if (links.empty()) links = {0, 2, 0.5};
  absl::Status made = InitializeHfDirectory(argument(1, "llama-124m"), /*seed=*/1,
                                            /*config_only=*/false, directory);
  absl::StatusOr<bool> held = true;
  for (const double link : links) {
    setting.link = link;
    const absl::StatusOr<bool> one = made.ok() ? Measure(setting, rounds) : made;
    if (!one.ok()) {
      held = one;
      break;
    }
    held = *held && *one;
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  return held;
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) {
  const absl::StatusOr<bool> held = megatrain::Run(argc, argv);
  if (!held.ok()) std::fprintf(stderr, "%s\n", held.status().ToString().c_str());
  return held.ok() && *held ? 0 : 1;
}
