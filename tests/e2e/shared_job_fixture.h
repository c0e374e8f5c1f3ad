// The fixture of tests that run one job over several processes: a model, the bits of a run by one
// process, and the exit codes.
#ifndef MEGATRAIN_TESTS_E2E_SHARED_JOB_FIXTURE_H_
#define MEGATRAIN_TESTS_E2E_SHARED_JOB_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/e2e/run_directory.h"
#include "tests/support/child_process.h"
#include "tests/support/mpi_job.h"
#include "tests/support/test_directory.h"

namespace megatrain {

inline constexpr int kSteps = 24;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kInterrupted = 7;
// The same bits for 1, 2 and 4 ranks.
inline constexpr char kShards[] = "global_batch: 4, micro_batch: 1, gradient_shards: 4";

// Its tests are skipped where there can be no job of several processes.
class SharedJobTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (WhyNoMpi().has_value()) return;
    own_ = new TestDirectory();
    MakeModel("llama-tiny", Model());
    const RunDirectory one = New("undisturbed");
    ChildProcess run(one.RunCommand(), one.path() / "log");
    ASSERT_EQ(run.Wait(), 0) << run.Output();
    undisturbed_ = new std::string(one.FinalState());
    ASSERT_THAT(*undisturbed_, ::testing::Ne(""));
    // For the processes of jobs under AddressSanitizer: Open MPI frees little at its end.
    const char* const given = std::getenv("ASAN_OPTIONS");
    ::setenv("ASAN_OPTIONS",
             (std::string(given == nullptr ? "" : given) + ":detect_leaks=0").c_str(), 1);
  }
  static void TearDownTestSuite() {
    delete undisturbed_;
    delete own_;
  }
  void SetUp() override {
    if (const auto why_not = WhyNoMpi(); why_not.has_value()) GTEST_SKIP() << *why_not;
    ASSERT_NE(undisturbed_, nullptr);
  }

  static std::filesystem::path Model() { return own_->path() + "/model"; }
  static RunDirectory New(const std::string& name, const std::string& training = kShards) {
    return RunDirectory(std::filesystem::path(own_->path()) / name, Model(), kSteps, training);
  }
  // Checks that a run which has ended has the bits of one process.
  static void ExpectUndisturbed(const RunDirectory& directory) {
    EXPECT_TRUE(directory.FinalState() == *undisturbed_) << "other bits at the end";
    directory.ExpectMetrics(kSteps);
  }

  inline static TestDirectory* own_ = nullptr;
  inline static std::string* undisturbed_ = nullptr;  // RunDirectory::FinalState
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_E2E_SHARED_JOB_FIXTURE_H_
