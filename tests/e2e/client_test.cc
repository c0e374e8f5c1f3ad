// `megatrain` against `megatraind serve`, both as a user runs them: submit, watch in a pipe, pause,
// resume, cancel, wait, and a daemon that is killed while it is watched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
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
#include "tests/support/wait_until.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kSteps = 120;
constexpr int kUnreachable = 6;
constexpr int kInterrupted = 7;

std::string Daemon() { return fs::absolute("server/megatraind").string(); }
std::string Client() { return fs::absolute("client/megatrain").string(); }

std::string TrainingText() {
  const char* words[] = {"the", "host", "holds", "a", "model", "and", "device", "one", "layer"};
  std::mt19937 random(7);
  std::string text;
  while (text.size() < 12000) {
    for (int i = 0; i < 8; ++i) text += std::string(words[random() % std::size(words)]) + " ";
    text += "\n";
  }
  return text;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

class ClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(directory_ / "train.txt") << TrainingText();
    ChildProcess init({Daemon(), "init", "--preset", "llama-tiny", "--out", directory_ / "model"},
                      directory_ / "init.log");
    ASSERT_EQ(init.Wait(), 0) << init.Output();
    // Steps of some 50 ms, so that the job is still there when something is done to it.
    std::ofstream(directory_ / "job.yaml") << "name: tiny\n"
                                              "model: {path: model}\n"
                                              "data:\n"
                                              "  train: [{path: train.txt, format: text}]\n"
                                              "  sequence_length: 64\n"
                                              "  tokenizer: bytes\n"
                                              "training: {steps: "
                                           << kSteps
                                           << ", global_batch: 4, micro_batch: 2}\n"
                                              "checkpoint: {every_steps: 10, keep: 2}\n"
                                              "output: {directory: out}\n"
                                              "engine: {threads: 1, "
                                              "link_gigabytes_per_second: 0.1}\n";
    setenv("MEGATRAIN_SERVER", Address().c_str(), 1);
    StartDaemon();
  }
  void TearDown() override {
    if (HasFailure()) std::fputs(daemon_->Output().c_str(), stderr);
    daemon_.reset();
  }

  std::string Address() const { return "unix:" + (directory_ / "m.sock").string(); }

  void StartDaemon() {
    daemon_ = std::make_unique<ChildProcess>(
        std::vector<std::string>{Daemon(), "serve", "--set", "listen=[\"" + Address() + "\"]",
                                 "--set", "state_directory=" + (directory_ / "state").string(),
                                 "--set", "device=cpu", "--set", "host_memory=256MiB", "--set",
                                 "threads=1", "--set", "metrics_listen="},
        directory_ / "daemon.log");
    WaitUntil([this] {
      std::string out;
      return Run({"info", "-o", "json"}, &out) == 0 &&
             out.find("\"state\": \"READY\"") != std::string::npos;
    });
  }

  void WaitUntil(const std::function<bool()>& condition) {
    ASSERT_TRUE(megatrain::WaitUntil(condition, [this] { return !daemon_->Running(); }))
        << daemon_->Output();
  }

  std::unique_ptr<ChildProcess> Start(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), Client());
    return std::make_unique<ChildProcess>(arguments,
                                          directory_ / ("client" + std::to_string(++started_)));
  }
  // The exit code. `*output` has standard output and error.
  int Run(const std::vector<std::string>& arguments, std::string* output = nullptr) {
    const auto client = Start(arguments);
    const int code = client->Wait();
    if (output != nullptr) *output = client->Output();
    return code;
  }
  std::string Submit() {
    std::string name;
    EXPECT_EQ(Run({"submit", directory_ / "job.yaml", "-q"}, &name), 0) << name;
    return name.substr(0, name.find('\n'));
  }
  nlohmann::json Show(const std::string& job) {
    std::string out;
    EXPECT_EQ(Run({"show", job, "-o", "json"}, &out), 0) << out;
    return nlohmann::json::parse(out, nullptr, /*allow_exceptions=*/false);
  }
  void WaitForState(const std::string& job, const std::string& state) {
    WaitUntil([&] { return Show(job)["state"] == state; });
  }
  static void ExpectOutput(ChildProcess& client, const std::string& text) {
    EXPECT_THAT(client.Output(), HasSubstr(text));
  }
  void WaitForOutput(ChildProcess& client, const std::string& text) {
    WaitUntil([&] { return client.Output().find(text) != std::string::npos; });
  }

  const TestDirectory own_{TestDirectory::Place::kShort};  // only this user may enter it
  const fs::path directory_ = own_.path();
  std::unique_ptr<ChildProcess> daemon_;
  int started_ = 0;
};

TEST_F(ClientTest, AJobIsWatchedPausedResumedAndCancelled) {
  const std::string job = Submit();
  ASSERT_THAT(job, StartsWith("jobs/"));
  const auto watch = Start({"watch", job});
  const auto wait = Start({"wait", job});
  WaitForOutput(*watch, "step 1/120 ");
  std::string out;
  EXPECT_EQ(Run({"pause", job}, &out), 0) << out;
  WaitForState(job, "PAUSED");
  WaitForOutput(*watch, "PAUSED");
  EXPECT_TRUE(wait->Running()) << "a paused job keeps it waiting";
  EXPECT_EQ(Run({"checkpoint", job}, &out), 2) << "not of a paused job";
  EXPECT_EQ(Run({"resume", job}), 0);
  WaitForState(job, "RUNNING");
  EXPECT_EQ(Run({"checkpoint", job}, &out), 0) << out;

  // Ctrl-C leaves the job alone.
  watch->Signal(SIGINT);
  EXPECT_EQ(watch->Wait(), kInterrupted) << watch->Output();
  ExpectOutput(*watch, "the job goes on");
  EXPECT_EQ(Show(job)["state"], "RUNNING");

  EXPECT_EQ(Run({"cancel", job}), 0);
  EXPECT_EQ(wait->Wait(), 1) << wait->Output();
  ExpectOutput(*wait, "has been cancelled");
  EXPECT_EQ(Run({"ls", "-q", "--state", "CANCELLED"}, &out), 0);
  EXPECT_EQ(out, job + "\n");
  EXPECT_EQ(Run({"resume", job}, &out), 2) << out;
}

TEST_F(ClientTest, TheDaemonIsKilledUnderTheViews) {
  const std::string job = Submit();
  const auto watch = Start({"watch", job});
  const auto metrics = Start({"metrics", job, "-f", "-o", "json"});
  const auto logs = Start({"logs", job, "-f", "-o", "json"});
  const auto wait = Start({"wait", job});
  WaitForOutput(*metrics, "\"step\":25,");
  daemon_->Signal(SIGKILL);
  daemon_->Wait();
  EXPECT_EQ(Run({"ls"}), kUnreachable);
  while (watch->Running() && watch->Output().find("the server is away") == std::string::npos) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  StartDaemon();
  EXPECT_EQ(watch->Wait(), 0) << watch->Output();
  EXPECT_EQ(metrics->Wait(), 0) << metrics->Output();
  EXPECT_EQ(logs->Wait(), 0) << logs->Output();
  EXPECT_EQ(wait->Wait(), 0) << wait->Output();
  EXPECT_THAT(watch->Output(), AllOf(HasSubstr("the server is back"), HasSubstr("step 120/120 "),
                                     HasSubstr("tiny has succeeded")));

  // Numbered without a gap; the fall back to the checkpoint has a number of its own, and is told.
  int64_t last = 0;
  int gaps = 0;
  for (const std::string& line : Lines(metrics->Output())) {
    if (line.front() != '{') {
      EXPECT_THAT(line, HasSubstr("fell back to the checkpoint of step"));
      ++gaps;
      ++last;
      continue;
    }
    EXPECT_EQ(nlohmann::json::parse(line)["sequence"], ++last);
  }
  EXPECT_EQ(gaps, 1);
  last = 0;
  for (const std::string& line : Lines(logs->Output())) {
    EXPECT_EQ(nlohmann::json::parse(line)["sequence"], ++last);
  }

  // Afterwards every step counts once.
  std::string out;
  EXPECT_EQ(Run({"metrics", job, "-o", "json"}, &out), 0);
  int step = 0;
  for (const std::string& line : Lines(out)) {
    const nlohmann::json record = nlohmann::json::parse(line);
    if (record["superseded"]) continue;
    EXPECT_EQ(record["step"], ++step);
  }
  EXPECT_EQ(step, kSteps);
  EXPECT_TRUE(fs::exists(directory_ / "out/config.json")) << "beside the job file";

  EXPECT_EQ(Run({"checkpoints", job}, &out), 0);
  EXPECT_THAT(out, HasSubstr("120 "));
  const std::string exported = directory_ / "exported";
  EXPECT_EQ(Run({"export", job, "--out", exported}, &out), 0) << out;
  EXPECT_EQ(ReadFileOrEmpty(exported + "/model.safetensors"),
            ReadFileOrEmpty(directory_ / "out/model.safetensors"));
  EXPECT_EQ(Run({"export", job, "--out", exported}, &out), 2) << "is there already: " << out;
}

// A job goes on from another one's checkpoints with another learning rate.
TEST_F(ClientTest, AllowedSectionsMayDifferFromTheCheckpoint) {
  const auto submit = [&](int steps, std::vector<std::string> more, std::string* name) {
    std::vector<std::string> arguments = {"submit",
                                          directory_ / "job.yaml",
                                          "-q",
                                          "--set",
                                          "engine.link_gigabytes_per_second=0",
                                          "--set",
                                          "checkpoint.directory=checkpoints",
                                          "--set",
                                          "training.steps=" + std::to_string(steps)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const int code = Run(arguments, name);
    *name = name->substr(0, name->find('\n'));
    return code;
  };
  const std::vector<std::string> rate = {"--set", "optimizer.learning_rate=1.0e-4"};
  const auto with_rate = [&rate](std::vector<std::string> more) {
    more.insert(more.end(), rate.begin(), rate.end());
    return more;
  };
  std::string job, out;
  ASSERT_EQ(submit(4, {}, &job), 0) << job;
  EXPECT_EQ(Run({"wait", job}), 0);

  ASSERT_EQ(submit(6, rate, &job), 0) << job;
  EXPECT_EQ(Run({"wait", job}), 1);
  EXPECT_THAT(Show(job)["reason_text"].get<std::string>(),
              AllOf(HasSubstr("optimizer.learning_rate differs"), HasSubstr("--allow-change")));
  EXPECT_EQ(submit(6, with_rate({"--allow-change", "model"}), &out), 2);
  EXPECT_THAT(out, HasSubstr("allow_change"));

  ASSERT_EQ(submit(6, with_rate({"--allow-change", "optimizer,schedule"}), &job), 0) << job;
  EXPECT_EQ(Run({"wait", job}), 0);
  EXPECT_EQ(Show(job)["allow_change"], (nlohmann::json{"optimizer", "schedule"}));
  EXPECT_EQ(Run({"logs", job}, &out), 0);
  EXPECT_THAT(out, AllOf(HasSubstr("--allow-change: optimizer.learning_rate was 0.0003 and is "
                                   "0.0001 after step 4"),
                         HasSubstr("the run has 6 steps now and had 4")));
  EXPECT_EQ(Run({"show", job}, &out), 0);
  EXPECT_THAT(out, HasSubstr("optimizer, schedule"));
  // `resume` of a paused job adds sections.
  job = Submit();
  WaitForState(job, "RUNNING");
  EXPECT_EQ(Run({"pause", job}), 0);
  WaitForState(job, "PAUSED");
  EXPECT_EQ(Run({"resume", job, "--allow-change", "schedule"}), 0);
  EXPECT_EQ(Show(job)["allow_change"], nlohmann::json{"schedule"});
  EXPECT_EQ(Run({"cancel", job}), 0);
}

TEST_F(ClientTest, AFailingJobFails) {
  std::string out;
  // Decayed by a factor of -999 a step, the weights are soon beyond what FP32 can hold.
  EXPECT_EQ(Run({"submit", directory_ / "job.yaml", "--watch", "--set",
                 "optimizer.learning_rate=1000", "--set", "optimizer.weight_decay=1"},
                &out),
            1)
      << out;
  EXPECT_THAT(out, AllOf(StartsWith("submitted tiny: jobs/"), HasSubstr("tiny has failed")));
}

}  // namespace
}  // namespace megatrain
