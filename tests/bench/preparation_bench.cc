// Prepares one file as a job does it, and starts again on what was prepared.
//
//   preparation_bench MODEL_DIRECTORY FILE CACHE_DIRECTORY [THREADS]
//
// MODEL_DIRECTORY has the tokenizer. FILE is a text, or records with a `text` (.jsonl). Each start
// is a process of its own. A line for each tells its seconds, MB/s, sequences and the most memory
// that the process held (peak RSS, MiB).
//
// The last line tells how long as many threads take that each only encode all of the texts, from
// memory and to memory, 64 KiB at a time, and how much of their speed the first start has reached:
// by its processors' time, and by its time. Nothing else should run meanwhile.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/data/sequences/dataset.h"
#include "engine/job/job_spec.h"
#include "engine/tokenizer/open_tokenizer.h"

namespace megatrain {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}
double ProcessorSeconds(const rusage& usage) {
  return Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
}

int Failed(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}

struct Arguments {
  std::string model, path, cache;
  int64_t threads = 0;
};

int Start(const Arguments& arguments, const char* name) {
  const absl::Time begin = absl::Now();
  const auto tokenizer = OpenTokenizer(arguments.model, "auto");
  if (!tokenizer.ok()) return Failed(tokenizer.status());
  JobSpec spec;
  spec.data.train = {{arguments.path, DataFormat::kText, ""}};
  spec.data.sequence_length = 1024;
  spec.training.steps = 1;
  spec.engine.threads = arguments.threads;
  const auto dataset = OpenDataset(spec, *tokenizer, arguments.model, (*tokenizer)->vocabulary(),
                                   arguments.cache, nullptr);
  if (!dataset.ok()) return Failed(dataset.status());
  const auto sequence = (*dataset)->TrainSequence(0);
  if (!sequence.ok()) return Failed(sequence.status());
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  const auto info = PosixFileSystem()->Examine(arguments.path);
  const double bytes = info.ok() ? static_cast<double>(info->bytes) : 0;
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  std::printf(
      "%s: %.1f s, %.1f s of processors, %.1f MB/s, %lld sequences of 1024, peak RSS %.1f MiB\n",
      name, seconds, ProcessorSeconds(usage), bytes / seconds / 1e6,
      static_cast<long long>((*dataset)->train_sequences()),
      static_cast<double>(usage.ru_maxrss) / 1024.0);
  return 0;
}

std::vector<std::string> Texts(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!absl::EndsWith(path, ".jsonl")) return {{std::istreambuf_iterator<char>(file), {}}};
  std::vector<std::string> texts;
  for (std::string line; std::getline(file, line);) {
    texts.push_back(nlohmann::json::parse(line).at("text"));
  }
  return texts;
}

// Encodes all texts, a piece at a time. Returns the seconds that it took.
absl::StatusOr<double> Encode(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  constexpr size_t kPieceBytes = size_t{64} << 10;
  std::vector<int32_t> ids;
  const absl::Time begin = absl::Now();
  for (std::string_view text : texts) {
    PieceState state;
    for (size_t wanted = kPieceBytes; !text.empty();) {
      ids.clear();
      const auto encoded =
          tokenizer.EncodePiece(text.substr(0, wanted), wanted >= text.size(), &state, &ids);
      if (!encoded.ok()) return encoded.status();
      text.remove_prefix(*encoded);
      wanted = *encoded == 0 ? 2 * wanted : kPieceBytes;
    }
  }
  return absl::ToDoubleSeconds(absl::Now() - begin);
}

int Main(const Arguments& arguments) {
  double processors = 0, seconds = 0;  // of the first start
  for (const char* name : {"first start", "next start"}) {
    const absl::Time begin = absl::Now();
    const pid_t child = fork();
    if (child == 0) {
      const int failed = Start(arguments, name);
      std::fflush(nullptr);
      _exit(failed);
    }
    int status = 0;
    rusage usage = {};
    if (child < 0 || wait4(child, &status, 0, &usage) != child || status != 0) return 1;
    if (processors == 0) {
      processors = ProcessorSeconds(usage);
      seconds = absl::ToDoubleSeconds(absl::Now() - begin);
    }
  }
  const auto tokenizer = OpenTokenizer(arguments.model, "auto");
  if (!tokenizer.ok()) return Failed(tokenizer.status());
  const std::vector<std::string> texts = Texts(arguments.path);
  const size_t count = arguments.threads > 0 ? static_cast<size_t>(arguments.threads)
                                             : std::thread::hardware_concurrency();
  std::vector<absl::StatusOr<double>> results(count, 0.0);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] { results[i] = Encode(**tokenizer, texts); });
  }
  for (std::thread& thread : threads) thread.join();
  double alone = 0;
  for (const auto& result : results) {
    if (!result.ok()) return Failed(result.status());
    alone += *result / static_cast<double>(count);
  }
  std::printf(
      "%zu threads in memory, all texts each: %.1f s; reached: %.2f by processors' time, "
      "%.2f by time\n",
      count, alone, alone / processors, alone / seconds / static_cast<double>(count));
  return 0;
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "preparation_bench MODEL_DIRECTORY FILE CACHE_DIRECTORY [THREADS]\n");
    return 2;
  }
  return megatrain::Main({argv[1], argv[2], argv[3], argc > 4 ? std::atoll(argv[4]) : 0});
}
