// Event files of whole runs, read back by a reader of the tests' own and by TensorBoard itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/watched_file_system.h"
#include "engine/engine.h"
#include "engine/trace/event_file.h"
#include "tensorboard_event.pb.h"
#include "tests/engine/numerics/job_run.h"
#include "tests/engine/numerics/model_reference.h"
#include "tests/engine/numerics/preference_reference.h"
#include "tests/engine/run/full_disk_file_system.h"
#include "tests/engine/run/hooked_run.h"
#include "tests/support/child_process.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using tensorboard::Event;
using tensorboard::SessionLog;
using ::testing::Contains;
using ::testing::HasSubstr;

std::vector<Event> ReadEvents(const std::string& path) {
  const std::string bytes = ReadBytes(path);
  std::vector<Event> events;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t size = 0;
    uint32_t size_crc = 0, crc = 0;
    std::memcpy(&size, bytes.data() + at, 8);
    std::memcpy(&size_crc, bytes.data() + at + 8, 4);
    EXPECT_EQ(size_crc, MaskedCrc32c(bytes.substr(at, 8)));
    const std::string record = bytes.substr(at + 12, size);
    std::memcpy(&crc, bytes.data() + at + 12 + size, 4);
    EXPECT_EQ(crc, MaskedCrc32c(record));
    EXPECT_TRUE(events.emplace_back().ParseFromString(record));
    at += 8 + 4 + size + 4;
  }
  return events;
}

std::vector<std::string> Files(const std::string& directory) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    EXPECT_TRUE(absl::StartsWith(entry.path().filename().string(), "events.out.tfevents."));
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::map<std::string, float> Scalars(const Event& event) {
  std::map<std::string, float> scalars;
  for (const auto& value : event.summary().value()) scalars[value.tag()] = value.simple_value();
  return scalars;
}

class TensorBoardReportTest : public ::testing::Test {
 protected:
  static JobSpec Job(const std::string& name) {
    JobSpec spec = HookedJob(name);
    spec.report.tensorboard = spec.checkpoint.directory + "_board";
    std::filesystem::remove_all(spec.report.tensorboard);
    return spec;
  }
  std::unique_ptr<EngineHost> host_ = HostWithPool();
};

TEST_F(TensorBoardReportTest, HoldsTheJobAndEveryStepsScalars) {
  JobSpec spec = Job("scalars");
  spec.training.eval_every = 2;
  DataFile file = spec.data.train[0];
  file.name = "again";
  spec.data.eval = {file};
  HookedRun run;
  ASSERT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
  const std::vector<std::string> files = Files(spec.report.tensorboard);
  ASSERT_EQ(files.size(), 1u);
  const std::vector<Event> events = ReadEvents(files[0]);
  ASSERT_EQ(events.size(), 3u + kHookedSteps);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_GT(events[0].wall_time(), 1.7e9);
  EXPECT_EQ(events[1].session_log().status(), SessionLog::START);
  EXPECT_EQ(events[1].step(), 1);
  const auto& text = events[2].summary().value(0);
  EXPECT_EQ(text.tag(), "job");
  EXPECT_EQ(text.metadata().plugin_data().plugin_name(), "text");
  EXPECT_THAT(text.tensor().string_val(0), HasSubstr("    training.steps: 4\n"));
  for (int64_t step = 1; step <= kHookedSteps; ++step) {
    const StepRecord& record = run.run.records[step - 1];
    std::map<std::string, float> expected = {{"loss", record.loss},
                                             {"gradient_norm", record.gradient_norm},
                                             {"learning_rate", record.learning_rate},
                                             {"tokens_per_second", record.tokens_per_second},
                                             {"step_seconds", record.step_seconds}};
    EXPECT_EQ(record.eval_loss.has_value(), step % 2 == 0);
    if (record.eval_loss.has_value()) {
      expected["eval_loss"] = *record.eval_loss;
      expected["eval_loss/again"] = record.eval_losses.at("again");
    }
    EXPECT_EQ(events[2 + step].step(), step);
    EXPECT_EQ(Scalars(events[2 + step]), expected);
  }
}

TEST_F(TensorBoardReportTest, HoldsTheRewardsOfPairs) {
  JobSpec spec = PreferenceJob(LoadPreferenceReference("llama_tied"), Precision::kFp32,
                               /*clipped=*/true, "pairs");
  spec.report.tensorboard = FreshDirectory("pairs_board");
  spec.data.eval_fraction = 0.1;
  spec.training.steps = spec.training.eval_every = 3;
  const JobRun run = Train(spec);
  ASSERT_TRUE(run.status.ok()) << run.status;
  const StepRecord& record = run.records.back();
  ASSERT_TRUE(record.rewards.has_value() && record.eval_rewards.has_value());
  std::map<std::string, float> scalars =
      Scalars(ReadEvents(Files(spec.report.tensorboard).at(0)).back());
  for (const auto& [prefix, rewards] :
       {std::pair("rewards/", *record.rewards), std::pair("eval_rewards/", *record.eval_rewards)}) {
    const auto scalar = [&, prefix = prefix](const char* name) {
      return scalars.at(absl::StrCat(prefix, name));
    };
    EXPECT_EQ(scalar("chosen"), static_cast<float>(rewards.chosen));
    EXPECT_EQ(scalar("rejected"), static_cast<float>(rewards.rejected));
    EXPECT_EQ(scalar("margins"), static_cast<float>(rewards.margins));
    EXPECT_EQ(scalar("accuracies"), static_cast<float>(rewards.accuracies));
  }
}

TEST_F(TensorBoardReportTest, HoldsHowTokensAreSpreadOverExperts) {
  for (const double coefficient : {0.0, 0.02}) {
    JobSpec spec = CurveJob(LoadModelReference("mixtral"), Precision::kFp32, /*clipped=*/true,
                            FreshDirectory("experts"));
    spec.report.tensorboard = FreshDirectory("experts_board");
    spec.training.steps = 1;
    spec.training.router_auxiliary_loss = coefficient;
    const JobRun run = Train(spec);
    ASSERT_TRUE(run.status.ok()) << run.status;
    const RouterReport router = run.records.at(0).router.value();
    std::map<std::string, float> scalars =
        Scalars(ReadEvents(Files(spec.report.tensorboard).at(0)).back());
    EXPECT_EQ(scalars.at("router/busiest"), static_cast<float>(router.busiest));
    EXPECT_EQ(scalars.at("router/entropy"), static_cast<float>(router.entropy));
    ASSERT_EQ(router.auxiliary_loss.has_value(), coefficient > 0);
    ASSERT_EQ(scalars.count("router/auxiliary_loss"), coefficient > 0 ? 1u : 0u);
    if (coefficient == 0) continue;
    EXPECT_EQ(scalars["router/auxiliary_loss"], static_cast<float>(*router.auxiliary_loss));
  }
}

TEST_F(TensorBoardReportTest, AResumedRunPurgesWhatItMakesAgain) {
  JobSpec spec = Job("resumed");
  spec.training.steps = 2;
  HookedRun run, resumed;
  ASSERT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
  spec.training.steps = 4;
  ASSERT_TRUE(resumed.Train(*host_, spec).ok()) << resumed.run.status;
  const std::vector<std::string> files = Files(spec.report.tensorboard);
  ASSERT_EQ(files.size(), 2u);
  const std::vector<Event> events = ReadEvents(files[1]);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[1].session_log().status(), SessionLog::START);
  EXPECT_EQ(events[1].step(), 3);
  EXPECT_EQ(events[3].step(), 3);
}

// Two runs make the last steps: TensorBoard shows those of the second.
TEST_F(TensorBoardReportTest, TensorBoardItselfShowsEachStepOnce) {
  const TestDirectory directory;
  ChildProcess import({"/usr/bin/env", "python3", "-c", "import tensorboard"},
                      directory / "import");
  if (import.Wait() != 0) {
    GTEST_SKIP() << "the python3 of the tests' PATH cannot import tensorboard "
                    "(pip install tensorboard; bazel test --test_env=PATH)";
  }
  JobSpec spec = Job("tensorboard");
  spec.data.tokenizer = "bytes";
  spec.training.eval_every = 2;
  spec.training.sample_prompts = {{"one", ""}};
  spec.training.sample_tokens = 6;
  spec.data.eval = {spec.data.train[0]};
  spec.checkpoint.every_steps = 2;
  HookedRun first, second;
  ASSERT_TRUE(first.Train(*host_, spec).ok()) << first.run.status;
  std::filesystem::remove_all(spec.checkpoint.directory + "/step-00000004");
  ASSERT_TRUE(second.Train(*host_, spec).ok()) << second.run.status;
  ASSERT_EQ(second.run.records.size(), 2u);

  ChildProcess reader(
      {"/usr/bin/env", "python3", "tests/engine/run/read_event_files.py", spec.report.tensorboard},
      directory / "found");
  ASSERT_EQ(reader.Wait(), 0) << reader.Output();
  const std::string output = reader.Output();
  const auto found =
      nlohmann::json::parse(output.substr(std::min(output.size(), output.find('{'))));
  using Points = std::vector<std::pair<int64_t, float>>;
  Points losses, rates, eval_losses, step_seconds;
  for (const StepRecord& record :
       {first.run.records[0], first.run.records[1], second.run.records[0], second.run.records[1]}) {
    losses.emplace_back(record.step, record.loss);
    rates.emplace_back(record.step, record.learning_rate);
    step_seconds.emplace_back(record.step, record.step_seconds);
    if (record.eval_loss.has_value()) eval_losses.emplace_back(record.step, *record.eval_loss);
  }
  const auto& scalars = found.at("scalars");
  EXPECT_EQ(scalars.at("loss").get<Points>(), losses);
  EXPECT_EQ(scalars.at("learning_rate").get<Points>(), rates);
  EXPECT_EQ(scalars.at("step_seconds").get<Points>(), step_seconds);
  EXPECT_EQ(scalars.at("eval_loss").get<Points>(), eval_losses);
  const auto& texts = found.at("texts");
  EXPECT_EQ(texts.at("samples/1").size(), 2u);
  EXPECT_THAT(texts.at("samples/1")[1][1].get<std::string>(), HasSubstr("    one\n\n---\n"));
  EXPECT_THAT(texts.at("job").back()[1].get<std::string>(), HasSubstr("    training.steps: 4\n"));
}

TEST_F(TensorBoardReportTest, APlaceThatCannotBeWrittenIsRefusedAtOnce) {
  JobSpec spec = Job("refused");
  spec.report.tensorboard = spec.data.train[0].path;
  HookedRun run;
  const absl::Status status = run.Train(*host_, spec).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("report.tensorboard: "));
}

// TensorBoard drops what a file has from the step of a later file's session on.
TEST_F(TensorBoardReportTest, APauseBeginsNoOtherFile) {
  const JobSpec spec = Job("paused");
  HookedRun run;
  run.step = [&](int64_t step) {
    if (step == 2) run.control.Pause();
  };
  run.paused = [&](const TrainingPause&) { run.control.Resume(); };
  ASSERT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
  EXPECT_THAT(run.events, Contains("paused"));
  const std::vector<std::string> files = Files(spec.report.tensorboard);
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(ReadEvents(files[0]).size(), 3u + kHookedSteps);
}

TEST_F(TensorBoardReportTest, OneOfSeveralProcessesWrites) {
  const JobSpec spec = Job("processes");
  for (const JobRun& run : TrainInProcesses({spec, spec})) {
    ASSERT_TRUE(run.status.ok()) << run.status;
  }
  const std::vector<std::string> files = Files(spec.report.tensorboard);
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(ReadEvents(files[0]).size(), 3u + kHookedSteps);
}

// Counts what is written to event files, and how much of it was synced.
class CountingFileSystem : public WatchedFileSystem {
 public:
  CountingFileSystem() : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }) {}

  absl::StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override {
    auto file = WatchedFileSystem::NewWritableFile(path);
    if (!file.ok() || !absl::StrContains(path, "tfevents")) return file;
    return std::make_unique<File>(*std::move(file), this);
  }

  int64_t appended = 0, synced = 0;  // records

 private:
  class File : public WritableFile {
   public:
    File(std::unique_ptr<WritableFile> file, CountingFileSystem* counts)
        : file_(std::move(file)), counts_(counts) {}
    absl::Status Append(const void* data, int64_t bytes) override {
      ++counts_->appended;
      return file_->Append(data, bytes);
    }
    absl::Status Sync() override {
      counts_->synced = counts_->appended;
      return file_->Sync();
    }
    absl::Status Close() override { return file_->Close(); }

   private:
    const std::unique_ptr<WritableFile> file_;
    CountingFileSystem* const counts_;
  };
};

// A run that goes on from a checkpoint does not make the steps before it again.
TEST_F(TensorBoardReportTest, TheStepsOfACheckpointAreSyncedBeforeItIsThere) {
  CountingFileSystem files;
  const auto host = HostWithPool(&files);
  JobSpec spec = Job("synced");
  spec.checkpoint.every_steps = 2;
  HookedRun run;
  std::vector<int64_t> saved;
  run.saved = [&](int64_t step) {
    saved.push_back(step);
    EXPECT_GE(files.synced, 3 + step);
  };
  ASSERT_TRUE(run.Train(*host, spec).ok()) << run.run.status;
  EXPECT_THAT(saved, ::testing::ElementsAre(2, 4));
  EXPECT_EQ(files.appended, 3 + kHookedSteps) << "a record for each write";
}

TEST_F(TensorBoardReportTest, AFailureIsToldOnceAndEndsTheFile) {
  FullDiskFileSystem disk(PosixFileSystem());
  const auto host = HostWithPool(&disk);
  const JobSpec spec = Job("failed");
  HookedRun run;
  run.step = [&](int64_t step) {
    if (step == 1) disk.FillAfter(0);
    if (step == 3) disk.MakeRoom();
  };
  ASSERT_TRUE(run.Train(*host, spec).ok()) << run.run.status;
  EXPECT_THAT(run.run.messages, Contains(HasSubstr("no more is written there")).Times(1));
  const std::vector<std::string> files = Files(spec.report.tensorboard);
  ASSERT_EQ(files.size(), 1u);
  EXPECT_EQ(ReadEvents(files[0]).size(), 3u) << "nothing behind the gap";
}

// The answers are those of generation with the same weights, and training goes on as without them.
TEST_F(TensorBoardReportTest, HoldsAnswersToSamplePrompts) {
  JobSpec spec = Job("samples");
  spec.data.tokenizer = "bytes";
  spec.data.chat_template = "chatml";
  spec.training.eval_every = 2;
  spec.data.eval = {spec.data.train[0]};
  HookedRun plain;
  ASSERT_TRUE(plain.Train(*host_, spec).ok()) << plain.run.status;
  JobSpec sampled = spec;
  sampled.checkpoint.directory += "_sampled";
  std::filesystem::remove_all(sampled.checkpoint.directory);
  std::filesystem::remove_all(spec.report.tensorboard);
  sampled.training.sample_prompts = {{"one", ""}, {"", R"({"prompt": "a b"})"}};
  sampled.training.sample_tokens = 6;
  HookedRun run;
  ASSERT_TRUE(run.Train(*host_, sampled).ok()) << run.run.status;
  ExpectSameRecords(run.run, plain.run);
  ExpectSameFiles(sampled, spec);
  ExpectPoolWhole(*host_);

  std::map<std::string, std::string> texts;  // by step and tag
  for (const Event& event : ReadEvents(Files(spec.report.tensorboard).at(0))) {
    for (const auto& value : event.summary().value()) {
      if (value.metadata().plugin_data().plugin_name() != "text") continue;
      texts[absl::StrCat(event.step(), " ", value.tag())] = value.tensor().string_val(0);
    }
  }
  EXPECT_EQ(texts.size(), 1u + 2 * 2);
  GenerateOptions options;
  options.prompts = sampled.training.sample_prompts;
  options.tokens = 6;
  options.temperature = 0;
  options.tokenizer = "bytes";
  GenerateSink sink;
  sink.answer = [&](size_t prompt, const GeneratedText& answer) {
    const Prompt& asked = options.prompts[prompt];
    EXPECT_EQ(texts[absl::StrCat("4 samples/", prompt + 1)],
              absl::StrCat("    ", asked.text, asked.record, "\n\n---\n\n    ",
                           absl::StrReplaceAll(answer.text, {{"\n", "\n    "}}), "\n"));
  };
  const absl::Status status =
      Generate(*host_, sampled.checkpoint.directory + "/step-00000004", options, sink);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(TensorBoardReportTest, ASamplePromptThatIsTooLongIsNamed) {
  JobSpec spec = Job("long_sample");
  spec.data.tokenizer = "bytes";
  spec.data.eval = {spec.data.train[0]};
  spec.training.sample_prompts = {{"short", ""}, {std::string(300, 'x'), ""}};
  spec.training.sample_tokens = 9;
  HookedRun run;
  const absl::Status status = run.Train(*host_, spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(HasSubstr("training.sample_prompts[1]: 300 tokens of prompt and 9 "),
                               HasSubstr("data.sequence_length")));
}

}  // namespace
}  // namespace megatrain
