// Prepares one text file as a job does, and starts again on what was prepared.
//
//   preparation_bench MODEL_DIRECTORY FILE CACHE_DIRECTORY [THREADS]
//
// MODEL_DIRECTORY has the tokenizer. Each start is a process of its own. A line for each tells its
// seconds, MB/s, sequences and the most memory that the process held (peak RSS, MiB).
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/data/sequences/dataset.h"
#include "engine/job/job_spec.h"
#include "engine/tokenizer/open_tokenizer.h"

namespace megatrain {
namespace {

int Start(const std::string& model, const std::string& path, const std::string& cache,
          int64_t threads, const char* name) {
  const absl::Time begin = absl::Now();
  const auto tokenizer = OpenTokenizer(model, "auto");
  if (!tokenizer.ok()) {
    std::fprintf(stderr, "%s\n", std::string(tokenizer.status().message()).c_str());
    return 1;
  }
  JobSpec spec;
  spec.data.train = {{path, DataFormat::kText, ""}};
  spec.data.sequence_length = 1024;
  spec.training.steps = 1;
  spec.engine.threads = threads;
  const auto dataset =
      OpenDataset(spec, *tokenizer, model, (*tokenizer)->vocabulary(), cache, nullptr);
  if (!dataset.ok()) {
    std::fprintf(stderr, "%s\n", std::string(dataset.status().message()).c_str());
    return 1;
  }
  const auto sequence = (*dataset)->TrainSequence(0);
  const double seconds = absl::ToDoubleSeconds(absl::Now() - begin);
  const auto info = PosixFileSystem()->Examine(path);
  const double bytes = info.ok() ? static_cast<double>(info->bytes) : 0;
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto processor = [](const timeval& t) { return t.tv_sec + t.tv_usec / 1e6; };
  std::printf(
      "%s: %.1f s, %.1f s of processors, %.1f MB/s, %lld sequences of 1024, peak RSS %.1f MiB\n",
      name, seconds, processor(usage.ru_utime) + processor(usage.ru_stime), bytes / seconds / 1e6,
      static_cast<long long>((*dataset)->train_sequences()), usage.ru_maxrss / 1024.0);
  return sequence.ok() ? 0 : 1;
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "preparation_bench MODEL_DIRECTORY FILE CACHE_DIRECTORY [THREADS]\n");
    return 2;
  }
  for (const char* name : {"first start", "next start"}) {
    const pid_t child = fork();
    if (child == 0) {
      const int failed =
          megatrain::Start(argv[1], argv[2], argv[3], argc > 4 ? std::atoll(argv[4]) : 0, name);
      std::fflush(nullptr);
      _exit(failed);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 1;
  }
  return 0;
}
