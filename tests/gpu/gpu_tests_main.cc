// gpu_tests: GoogleTest's program for tests/gpu.sh, which must know what became of each test even
// when the process does not live to its end. A test that is skipped has failed: whoever starts this
// program has a GPU. Exit code 5: the filter leaves no test. Exit code 6: a test failed, and CUDA
// refuses all calls of this process since; the tests behind it were not begun.
//
//   MEGATRAIN_TEST_RESULTS=FILE  gets lines as they are known: "run NAME", and then "ok NAME",
//                                "failed NAME", "skipped NAME" or "hung NAME", and "lost -" before
//                                exit code 6. A test that ended the process has "run" alone.
//   MEGATRAIN_TEST_SECONDS=N     a test that takes longer ends the process with exit code 124.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "tests/gpu/gpu_under_test.h"

namespace {

constexpr int kNoTestCode = 5;
constexpr int kLostCode = 6;
constexpr int kHungCode = 124;  // as of timeout(1)

std::string NameOf(const testing::TestInfo& test) {
  return std::string(test.test_suite_name()) + "." + test.name();
}

class Reporter : public testing::EmptyTestEventListener {
 public:
  Reporter() {
    if (const char* path = std::getenv("MEGATRAIN_TEST_RESULTS"); path != nullptr) {
      file_ = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
      if (file_ < 0) std::perror(path);
    }
    if (const char* seconds = std::getenv("MEGATRAIN_TEST_SECONDS"); seconds != nullptr) {
      limit_ = std::chrono::seconds(std::atoi(seconds));
    }
    if (limit_.count() > 0) {
      watch_ = std::jthread([this](const std::stop_token& stop) { Watch(stop); });
    }
  }

  void OnTestStart(const testing::TestInfo& test) override {
    std::lock_guard<std::mutex> lock(mutex_);
    running_ = NameOf(test);
    ++number_;
    Tell("run", running_);
    changed_.notify_all();
  }

  void OnTestEnd(const testing::TestInfo& test) override {
    const testing::TestResult& result = *test.result();
    // This calls CUDA, so the watch is left on.
    const bool lost = result.Failed() && megatrain::GpuUnderTestIsLost();
    std::lock_guard<std::mutex> lock(mutex_);
    running_.clear();
    Tell(result.Skipped() ? "skipped" : result.Passed() ? "ok" : "failed", NameOf(test));
    if (lost) {
      Tell("lost", "-");
      std::fprintf(stderr, "the GPU is lost to this process\n");
      std::fflush(stdout);
      _exit(kLostCode);
    }
    changed_.notify_all();
  }

 private:
  void Tell(const std::string& outcome, const std::string& name) {
    const std::string line = outcome + " " + name + "\n";
    if (file_ >= 0 && write(file_, line.data(), line.size()) < 0) std::perror("test results");
  }

  void Watch(const std::stop_token& stop) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (changed_.wait(lock, stop, [&] { return !running_.empty(); })) {
      const int64_t number = number_;
      const auto ended = [&] { return running_.empty() || number_ != number; };
      if (changed_.wait_for(lock, stop, limit_, ended) || stop.stop_requested()) continue;
      Tell("hung", running_);
      std::fprintf(stderr, "%s takes more than %lld s: given up\n", running_.c_str(),
                   static_cast<long long>(limit_.count()));
      std::fflush(stdout);
      _exit(kHungCode);
    }
  }

  int file_ = -1;
  std::chrono::seconds limit_{0};
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::string running_;  // empty: none
  int64_t number_ = 0;   // of tests begun
  std::jthread watch_;   // last: uses the rest
};

}  // namespace

namespace {

// Returns the exit code.
int Run() {
  const testing::UnitTest& tests = *testing::UnitTest::GetInstance();
  if (RUN_ALL_TESTS() != 0) return 1;
  if (tests.skipped_test_count() > 0) {
    std::fprintf(stderr, "%d tests were skipped\n", tests.skipped_test_count());
    return 1;
  }
  if (tests.test_to_run_count() == 0 && !testing::FLAGS_gtest_list_tests) {
    std::fprintf(stderr, "no test has such a name\n");
    return kNoTestCode;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new Reporter);
  const int code = Run();
  megatrain::CloseCudaUnderTest();
  return code;
}
