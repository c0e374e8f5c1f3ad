// `megatraind run` from outside: stopped, killed, resumed, refused, on a disk that fills. Whatever
// happens on the way, the weights at the end are those of a run that nothing disturbed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/run_directory.h"
#include "tests/support/child_process.h"
#include "tests/support/read_file.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Ne;

constexpr int kSteps = 40;
constexpr int kInterrupted = 7;

class RunTest : public ::testing::Test {
 protected:
  // The model and the run that nothing disturbs, once for all tests.
  static void SetUpTestSuite() {
    own_ = new TestDirectory();
    root_ = new fs::path(own_->path());
    fs::create_directories(*root_ / "logs");
    MakeModel("llama-tiny", *root_ / "model");
    const RunDirectory directory = NewDirectory("undisturbed");
    const auto run = Run(directory, {});
    ASSERT_EQ(run->Wait(), 0) << run->Output();
    undisturbed_ = new std::string(directory.FinalState());
    ASSERT_THAT(*undisturbed_, Ne(""));
    directory.ExpectMetrics(kSteps);
  }
  static void TearDownTestSuite() {
    delete root_;
    delete own_;
  }

  void SetUp() override {
    ASSERT_NE(undisturbed_, nullptr);
    run_ = NewDirectory(::testing::UnitTest::GetInstance()->current_test_info()->name());
    directory_ = run_.path();
  }

  static RunDirectory NewDirectory(const std::string& name) {
    return RunDirectory(*root_ / name, *root_ / "model", kSteps);
  }
  static std::unique_ptr<ChildProcess> Run(const RunDirectory& directory,
                                           const std::vector<std::string>& more,
                                           int64_t file_bytes_max = 0) {
    return std::make_unique<ChildProcess>(directory.RunCommand(more), directory.path() / "log",
                                          ChildLimits{.file_bytes = file_bytes_max});
  }
  std::unique_ptr<ChildProcess> Run(const std::vector<std::string>& more = {},
                                    int64_t file_bytes_max = 0) {
    return Run(run_, more, file_bytes_max);
  }

  // Runs to the end and compares.
  void FinishAndCompare(const std::vector<std::string>& more = {}) {
    const auto run = Run(more);
    EXPECT_EQ(run->Wait(), 0) << run->Output();
    EXPECT_TRUE(run_.FinalState() == *undisturbed_) << "other bits at the end";
    run_.ExpectMetrics(kSteps);
  }

  // Stops a run after a few steps. Returns the step it saved.
  int RunAndInterrupt(const std::vector<std::string>& more = {}, int signal = SIGTERM) {
    const auto run = Run(more);
    run_.WaitForStep(*run, 3);
    run->Signal(signal);
    EXPECT_EQ(run->Wait(), kInterrupted) << run->Output();
    const std::vector<std::string> checkpoints = run_.Checkpoints();
    if (checkpoints.empty()) {
      ADD_FAILURE() << "nothing saved: " << run->Output();
      return 0;
    }
    return RunDirectory::StepOf(checkpoints.back());
  }

  void ExpectRefused(const std::vector<std::string>& more, const std::string& message) {
    const auto run = Run(more);
    EXPECT_THAT(run->Wait(), AnyOf(Eq(1), Eq(2))) << run->Output();
    EXPECT_THAT(run->Output(), HasSubstr(message));
  }

  int Verify(const std::string& checkpoint, std::string* output = nullptr) {
    ChildProcess verify({MegatraindBinary(), "verify", directory_ / "checkpoints" / checkpoint},
                        *root_ / "logs/verify");
    const int code = verify.Wait();
    if (output != nullptr) *output = verify.Output();
    return code;
  }

  static TestDirectory* own_;
  static fs::path* root_;
  static std::string* undisturbed_;
  RunDirectory run_;
  fs::path directory_;  // run_.path()
};

TestDirectory* RunTest::own_ = nullptr;
fs::path* RunTest::root_ = nullptr;
std::string* RunTest::undisturbed_ = nullptr;

TEST_F(RunTest, SigtermSavesAndResumingGivesTheSameBits) {
  const int step = RunAndInterrupt();
  EXPECT_GE(step, 3);
  EXPECT_LT(step, kSteps);
  run_.ExpectMetrics(step);
  FinishAndCompare();
  // A run that is finished is finished.
  const auto again = Run();
  EXPECT_EQ(again->Wait(), 0) << again->Output();
  run_.ExpectMetrics(kSteps);
}

TEST_F(RunTest, SigintTooAndASecondRunStoppedAgain) {
  const int first = RunAndInterrupt({}, SIGINT);
  const auto run = Run();
  run_.WaitForStep(*run, first + 2);
  run->Signal(SIGINT);
  EXPECT_EQ(run->Wait(), kInterrupted) << run->Output();
  FinishAndCompare();
}

TEST_F(RunTest, KilledAtRandomMoments) {
  std::mt19937 random(11);
  for (int i = 0; i < 5; ++i) {
    const auto run = Run({"--set", "checkpoint.every_steps=4"});
    run_.WaitForStep(*run, static_cast<int>(3 + 6 * i + random() % 5));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    run->Signal(SIGKILL);
    EXPECT_THAT(run->Wait(), AnyOf(Eq(-SIGKILL), Eq(0))) << run->Output();
  }
  FinishAndCompare();
}

TEST_F(RunTest, KilledBeforeAnythingWasSaved) {
  const auto run = Run({"--set", "checkpoint.every_steps=0"});
  run_.WaitForStep(*run, 2);
  run->Signal(SIGKILL);
  run->Wait();
  EXPECT_TRUE(run_.Checkpoints().empty());
  FinishAndCompare();
}

TEST_F(RunTest, Sigusr1Saves) {
  const auto run = Run({"--set", "checkpoint.every_steps=0"});
  run_.WaitForStep(*run, 2);
  run->Signal(SIGUSR1);
  while (run->Running() && run_.Checkpoints().empty()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::vector<std::string> saved = run_.Checkpoints();
  ASSERT_FALSE(saved.empty()) << run->Output();
  EXPECT_LT(RunDirectory::StepOf(saved[0]), kSteps);
  EXPECT_EQ(Verify(saved[0]), 0);
  run->Signal(SIGKILL);
  run->Wait();
  FinishAndCompare();
}

TEST_F(RunTest, WhatAResumedRunMayNotChangeIsRefusedByName) {
  RunAndInterrupt();
  const std::vector<std::string> before = run_.Checkpoints();
  ExpectRefused({"--resume", "never"}, "checkpoints");
  ExpectRefused({"--set", "optimizer.learning_rate=2.0e-3"}, "optimizer.learning_rate");
  ExpectRefused({"--set", "training.precision=fp32"}, "training.precision");
  ExpectRefused({"--set", "training.seed=7"}, "training.seed");
  WriteText(directory_ / "train.txt", TrainingText(2));
  ExpectRefused({}, "data");
  EXPECT_EQ(run_.Checkpoints(), before) << "a refusal changes nothing";
  WriteText(directory_ / "train.txt", TrainingText(1));
  FinishAndCompare({"--set", "checkpoint.every_steps=0", "--set", "engine.weight_buffers=3"});
}

TEST_F(RunTest, ADamagedCheckpointIsNamedAndTheOlderOneUsed) {
  {
    const auto run = Run({"--set", "checkpoint.every_steps=5"});
    run_.WaitForStep(*run, 12);
    run->Signal(SIGTERM);
    EXPECT_EQ(run->Wait(), kInterrupted) << run->Output();
  }
  const std::vector<std::string> checkpoints = run_.Checkpoints();
  ASSERT_EQ(checkpoints.size(), 2u);
  fs::path target;
  for (const auto& entry : fs::directory_iterator(directory_ / "checkpoints" / checkpoints[1])) {
    if (entry.path().filename().string().starts_with("optimizer-00002")) target = entry.path();
  }
  std::string content = ReadFileOrEmpty(target);
  ASSERT_GT(content.size(), 100u);
  content[content.size() / 2] ^= 4;
  WriteText(target, content);
  std::string output;
  EXPECT_EQ(Verify(checkpoints[1], &output), 1);
  EXPECT_THAT(output, HasSubstr(target.filename().string()));
  EXPECT_EQ(Verify(checkpoints[0]), 0);
  const auto run = Run();
  EXPECT_EQ(run->Wait(), 0);
  EXPECT_THAT(run->Output(), HasSubstr(target.filename().string()));
  EXPECT_TRUE(run_.FinalState() == *undisturbed_);
  run_.ExpectMetrics(kSteps);
}

// As torchrun starts it on one machine: the first process has a device for each, and the others
// end.
TEST_F(RunTest, TorchrunsProcessesAreDevices) {
  const auto start = [&](const RunDirectory& directory, int rank, int devices) {
    std::vector<std::string> command = {
        "/usr/bin/env",     absl::StrCat("RANK=", rank), absl::StrCat("LOCAL_RANK=", rank),
        "WORLD_SIZE=2",     "LOCAL_WORLD_SIZE=2",        "MASTER_ADDR=127.0.0.1",
        "MASTER_PORT=29500"};
    const std::vector<std::string> run =
        directory.RunCommand({"--set", absl::StrCat("engine.devices=", devices)});
    command.insert(command.end(), run.begin(), run.end());
    return std::make_unique<ChildProcess>(command, directory.path() / absl::StrCat("log", rank));
  };
  const auto second = start(run_, 1, 1);
  EXPECT_EQ(second->Wait(), 0) << second->Output();
  EXPECT_EQ(second->Output(), "");
  EXPECT_THAT(run_.MetricSteps(), ::testing::IsEmpty());
  const auto first = start(run_, 0, 1);
  EXPECT_EQ(first->Wait(), 0) << first->Output();

  const RunDirectory devices = NewDirectory("devices");
  const auto expected = Run(devices, {"--set", "engine.devices=2"});
  EXPECT_EQ(expected->Wait(), 0) << expected->Output();
  EXPECT_TRUE(run_.FinalState() == devices.FinalState());

  const auto refused = start(NewDirectory("refused"), 0, 3);
  EXPECT_EQ(refused->Wait(), 2) << refused->Output();
  EXPECT_THAT(refused->Output(), HasSubstr("engine.devices: torchrun has started 2 processes"));
}

TEST_F(RunTest, ResumesFromANamedCheckpoint) {
  {
    const auto run = Run({"--set", "checkpoint.every_steps=5"});
    run_.WaitForStep(*run, 12);
    run->Signal(SIGTERM);
    EXPECT_EQ(run->Wait(), kInterrupted) << run->Output();
  }
  const std::vector<std::string> checkpoints = run_.Checkpoints();
  ASSERT_EQ(checkpoints.size(), 2u);
  const std::string older = directory_ / "checkpoints" / checkpoints[0];
  // The newer one is not lost without a word.
  ExpectRefused({"--resume", older}, checkpoints[1]);
  ExpectRefused({"--resume", older}, "--discard-newer");
  EXPECT_EQ(run_.Checkpoints(), checkpoints) << "a refusal changes nothing";
  FinishAndCompare({"--resume", older, "--discard-newer"});
}

TEST_F(RunTest, AFileThatCannotGrowKeepsTheOldCheckpointAndSaysSo) {
  const int step = RunAndInterrupt();
  const std::string old = run_.Checkpoints().back();
  // Enough for the metrics, not for a tile.
  const auto run = Run({"--set", "checkpoint.every_steps=5"}, 100000);
  EXPECT_THAT(run->Wait(), Ne(0)) << run->Output();
  EXPECT_THAT(run->Output(), HasSubstr("checkpoints"));
  EXPECT_EQ(run_.Checkpoints(), std::vector<std::string>{old});
  EXPECT_EQ(RunDirectory::StepOf(old), step);
  EXPECT_EQ(Verify(old), 0);
  for (const auto& entry : fs::directory_iterator(directory_ / "checkpoints")) {
    EXPECT_THAT(entry.path().string(), ::testing::Not(::testing::EndsWith(".tmp")));
  }
  FinishAndCompare();
}

}  // namespace
}  // namespace megatrain
