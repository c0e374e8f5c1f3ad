// `megatraind run` from outside: stopped, killed, resumed, refused, on a disk that fills. Whatever
// happens on the way, the weights at the end are those of a run that nothing disturbed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

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

std::string Binary() { return fs::absolute("server/megatraind").string(); }

void WriteText(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Sentences of a few words in a fixed random order.
std::string TrainingText(uint32_t seed) {
  const char* words[] = {"the",   "model", "is",      "larger",  "than",   "memory",
                         "a",     "tile",  "streams", "through", "device", "and",
                         "every", "bit",   "stays",   "same"};
  std::mt19937 random(seed);
  std::string text;
  while (text.size() < 12000) {
    for (int i = 0; i < 8; ++i) {
      text += words[random() % std::size(words)];
      text += i < 7 ? " " : ".\n";
    }
  }
  return text;
}

class RunTest : public ::testing::Test {
 protected:
  // The model and the run that nothing disturbs, once for all tests.
  static void SetUpTestSuite() {
    own_ = new TestDirectory();
    root_ = new fs::path(own_->path());
    fs::create_directories(*root_ / "logs");
    ChildProcess init({Binary(), "init", "--preset", "llama-tiny", "--out", Model(), "--seed", "3"},
                      *root_ / "logs/init");
    ASSERT_EQ(init.Wait(), 0) << init.Output();
    const fs::path directory = NewDirectory("undisturbed");
    const auto run = Run(directory, {});
    ASSERT_EQ(run->Wait(), 0) << run->Output();
    undisturbed_ = new std::string(FinalState(directory));
    ASSERT_THAT(*undisturbed_, Ne(""));
    ExpectMetrics(directory, kSteps);
  }
  static void TearDownTestSuite() {
    delete root_;
    delete own_;
  }

  void SetUp() override {
    ASSERT_NE(undisturbed_, nullptr);
    directory_ = NewDirectory(::testing::UnitTest::GetInstance()->current_test_info()->name());
  }

  static std::string Model() { return *root_ / "model"; }

  // A directory with the job file and its data.
  static fs::path NewDirectory(const std::string& name) {
    const fs::path directory = *root_ / name;
    fs::create_directories(directory);
    WriteText(directory / "train.txt", TrainingText(1));
    WriteText(directory / "job.yaml",
              "name: tiny\n"
              "model: {path: " +
                  Model() +
                  "}\n"
                  "data:\n"
                  "  train: [{path: train.txt, format: text}]\n"
                  "  sequence_length: 64\n"
                  "  tokenizer: bytes\n"
                  "training: {steps: " +
                  std::to_string(kSteps) +
                  ", global_batch: 4, micro_batch: 2}\n"
                  "optimizer: {learning_rate: 1.0e-3}\n"
                  "checkpoint: {directory: checkpoints, every_steps: 10, keep: 2}\n"
                  "output: {directory: out}\n"
                  "engine: {device: cpu, threads: 1}\n");
    return directory;
  }

  static std::unique_ptr<ChildProcess> Run(const fs::path& directory,
                                           const std::vector<std::string>& more,
                                           int64_t file_bytes_max = 0) {
    std::vector<std::string> arguments = {Binary(), "run", directory / "job.yaml", "--metrics-out",
                                          directory / "metrics.jsonl"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return std::make_unique<ChildProcess>(arguments, directory / "log",
                                          ChildLimits{.file_bytes = file_bytes_max});
  }
  std::unique_ptr<ChildProcess> Run(const std::vector<std::string>& more = {},
                                    int64_t file_bytes_max = 0) {
    return Run(directory_, more, file_bytes_max);
  }

  // The steps in the metrics file; a line that is being written is left out.
  static std::vector<int> MetricSteps(const fs::path& directory) {
    const std::string text = ReadFileOrEmpty(directory / "metrics.jsonl");
    std::vector<int> steps;
    size_t begin = 0;
    for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const auto line = nlohmann::json::parse(text.substr(begin, end - begin), nullptr,
                                              /*allow_exceptions=*/false);
      steps.push_back(line.is_object() ? line.value("step", -1) : -1);
    }
    return steps;
  }
  static void ExpectMetrics(const fs::path& directory, int last) {
    std::vector<int> expected;
    for (int step = 1; step <= last; ++step) expected.push_back(step);
    EXPECT_EQ(MetricSteps(directory), expected);
  }

  // Waits until step `step` is in the metrics or the process ended.
  void WaitForStep(ChildProcess& run, int step) {
    while (run.Running()) {
      const std::vector<int> steps = MetricSteps(directory_);
      if (!steps.empty() && steps.back() >= step) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  static std::vector<std::string> Checkpoints(const fs::path& directory) {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(directory / "checkpoints", error)) {
      const std::string name = entry.path().filename();
      if (name.starts_with("step-") && name.size() == 13) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  std::vector<std::string> Checkpoints() { return Checkpoints(directory_); }
  static int StepOf(const std::string& checkpoint) { return std::atoi(checkpoint.c_str() + 5); }

  // The exported weights, and weights, moments and remainders of the last checkpoint.
  static std::string FinalState(const fs::path& directory) {
    std::string state = ReadFileOrEmpty(directory / "out/model.safetensors");
    const std::vector<std::string> checkpoints = Checkpoints(directory);
    if (checkpoints.empty() || state.empty()) return "";
    std::vector<fs::path> files;
    for (const auto& entry :
         fs::directory_iterator(directory / "checkpoints" / checkpoints.back())) {
      if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) state += ReadFileOrEmpty(file);
    return checkpoints.back() + state;
  }

  // Runs to the end and compares.
  void FinishAndCompare(const std::vector<std::string>& more = {}) {
    const auto run = Run(more);
    EXPECT_EQ(run->Wait(), 0) << run->Output();
    EXPECT_TRUE(FinalState(directory_) == *undisturbed_) << "other bits at the end";
    ExpectMetrics(directory_, kSteps);
  }

  // Stops a run after a few steps. Returns the step it saved.
  int RunAndInterrupt(const std::vector<std::string>& more = {}, int signal = SIGTERM) {
    const auto run = Run(more);
    WaitForStep(*run, 3);
    run->Signal(signal);
    EXPECT_EQ(run->Wait(), kInterrupted) << run->Output();
    const std::vector<std::string> checkpoints = Checkpoints();
    if (checkpoints.empty()) {
      ADD_FAILURE() << "nothing saved: " << run->Output();
      return 0;
    }
    return StepOf(checkpoints.back());
  }

  void ExpectRefused(const std::vector<std::string>& more, const std::string& message) {
    const auto run = Run(more);
    EXPECT_THAT(run->Wait(), AnyOf(Eq(1), Eq(2))) << run->Output();
    EXPECT_THAT(run->Output(), HasSubstr(message));
  }

  int Verify(const std::string& checkpoint, std::string* output = nullptr) {
    ChildProcess verify({Binary(), "verify", directory_ / "checkpoints" / checkpoint},
                        *root_ / "logs/verify");
    const int code = verify.Wait();
    if (output != nullptr) *output = verify.Output();
    return code;
  }

  static TestDirectory* own_;
  static fs::path* root_;
  static std::string* undisturbed_;
  fs::path directory_;
};

TestDirectory* RunTest::own_ = nullptr;
fs::path* RunTest::root_ = nullptr;
std::string* RunTest::undisturbed_ = nullptr;

TEST_F(RunTest, SigtermSavesAndResumingGivesTheSameBits) {
  const int step = RunAndInterrupt();
  EXPECT_GE(step, 3);
  EXPECT_LT(step, kSteps);
  ExpectMetrics(directory_, step);
  FinishAndCompare();
  // A run that is finished is finished.
  const auto again = Run();
  EXPECT_EQ(again->Wait(), 0) << again->Output();
  ExpectMetrics(directory_, kSteps);
}

TEST_F(RunTest, SigintTooAndASecondRunStoppedAgain) {
  const int first = RunAndInterrupt({}, SIGINT);
  const auto run = Run();
  WaitForStep(*run, first + 2);
  run->Signal(SIGINT);
  EXPECT_EQ(run->Wait(), kInterrupted) << run->Output();
  FinishAndCompare();
}

TEST_F(RunTest, KilledAtRandomMoments) {
  std::mt19937 random(11);
  for (int i = 0; i < 5; ++i) {
    const auto run = Run({"--set", "checkpoint.every_steps=4"});
    WaitForStep(*run, static_cast<int>(3 + 6 * i + random() % 5));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    run->Signal(SIGKILL);
    EXPECT_THAT(run->Wait(), AnyOf(Eq(-SIGKILL), Eq(0))) << run->Output();
  }
  FinishAndCompare();
}

TEST_F(RunTest, KilledBeforeAnythingWasSaved) {
  const auto run = Run({"--set", "checkpoint.every_steps=0"});
  WaitForStep(*run, 2);
  run->Signal(SIGKILL);
  run->Wait();
  EXPECT_TRUE(Checkpoints().empty());
  FinishAndCompare();
}

TEST_F(RunTest, Sigusr1Saves) {
  const auto run = Run({"--set", "checkpoint.every_steps=0"});
  WaitForStep(*run, 2);
  run->Signal(SIGUSR1);
  while (run->Running() && Checkpoints().empty()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::vector<std::string> saved = Checkpoints();
  ASSERT_FALSE(saved.empty()) << run->Output();
  EXPECT_LT(StepOf(saved[0]), kSteps);
  EXPECT_EQ(Verify(saved[0]), 0);
  run->Signal(SIGKILL);
  run->Wait();
  FinishAndCompare();
}

TEST_F(RunTest, WhatAResumedRunMayNotChangeIsRefusedByName) {
  RunAndInterrupt();
  const std::vector<std::string> before = Checkpoints();
  ExpectRefused({"--resume", "never"}, "checkpoints");
  ExpectRefused({"--set", "optimizer.learning_rate=2.0e-3"}, "optimizer.learning_rate");
  ExpectRefused({"--set", "training.precision=fp32"}, "training.precision");
  ExpectRefused({"--set", "training.seed=7"}, "training.seed");
  WriteText(directory_ / "train.txt", TrainingText(2));
  ExpectRefused({}, "data");
  EXPECT_EQ(Checkpoints(), before) << "a refusal changes nothing";
  WriteText(directory_ / "train.txt", TrainingText(1));
  FinishAndCompare({"--set", "checkpoint.every_steps=0", "--set", "engine.weight_buffers=3"});
}

TEST_F(RunTest, ADamagedCheckpointIsNamedAndTheOlderOneUsed) {
  {
    const auto run = Run({"--set", "checkpoint.every_steps=5"});
    WaitForStep(*run, 12);
    run->Signal(SIGTERM);
    EXPECT_EQ(run->Wait(), kInterrupted) << run->Output();
  }
  const std::vector<std::string> checkpoints = Checkpoints();
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
  EXPECT_TRUE(FinalState(directory_) == *undisturbed_);
  ExpectMetrics(directory_, kSteps);
}

TEST_F(RunTest, ResumesFromANamedCheckpoint) {
  {
    const auto run = Run({"--set", "checkpoint.every_steps=5"});
    WaitForStep(*run, 12);
    run->Signal(SIGTERM);
    EXPECT_EQ(run->Wait(), kInterrupted) << run->Output();
  }
  const std::vector<std::string> checkpoints = Checkpoints();
  ASSERT_EQ(checkpoints.size(), 2u);
  const std::string older = directory_ / "checkpoints" / checkpoints[0];
  // The newer one is not lost without a word.
  ExpectRefused({"--resume", older}, checkpoints[1]);
  ExpectRefused({"--resume", older}, "--discard-newer");
  EXPECT_EQ(Checkpoints(), checkpoints) << "a refusal changes nothing";
  FinishAndCompare({"--resume", older, "--discard-newer"});
}

TEST_F(RunTest, AFileThatCannotGrowKeepsTheOldCheckpointAndSaysSo) {
  const int step = RunAndInterrupt();
  const std::string old = Checkpoints().back();
  // Enough for the metrics, not for a tile.
  const auto run = Run({"--set", "checkpoint.every_steps=5"}, 100000);
  EXPECT_THAT(run->Wait(), Ne(0)) << run->Output();
  EXPECT_THAT(run->Output(), HasSubstr("checkpoints"));
  EXPECT_EQ(Checkpoints(), std::vector<std::string>{old});
  EXPECT_EQ(StepOf(old), step);
  EXPECT_EQ(Verify(old), 0);
  for (const auto& entry : fs::directory_iterator(directory_ / "checkpoints")) {
    EXPECT_THAT(entry.path().string(), ::testing::Not(::testing::EndsWith(".tmp")));
  }
  FinishAndCompare();
}

}  // namespace
}  // namespace megatrain
