// What a run that goes on does to the checkpoints that lie in its directory: those of another
// course of training, of another run, damaged ones, and ones that cannot be read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/manifest.h"
#include "engine/engine.h"
#include "tests/engine/run/hooked_run.h"
#include "tests/support/refusing_file_system.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

std::vector<int64_t> Steps(const JobSpec& spec) { return *ListSteps(spec.checkpoint.directory); }

std::string Path(const JobSpec& spec, int64_t step) {
  return JoinPath(spec.checkpoint.directory, StepDirectoryName(step));
}

class ResumeTest : public ::testing::Test {
 protected:
  // kHookedSteps steps, each of them saved.
  JobSpec TrainedJob(const std::string& directory) {
    JobSpec spec = HookedJob(directory);
    spec.checkpoint.every_steps = 1;
    spec.checkpoint.keep = 9;
    HookedRun run;
    EXPECT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
    EXPECT_THAT(Steps(spec), ElementsAre(4, 3, 2, 1));
    return spec;
  }

  std::unique_ptr<EngineHost> host_ = HostWithPool();
};

TEST_F(ResumeTest, NewerCheckpointsAreNotRemovedUnlessToldSo) {
  JobSpec spec = TrainedJob("newer");
  spec.checkpoint.keep = 1;
  spec.training.steps = 2;
  HookedRun refused;
  refused.options.resume = ResumeMode::kPath;
  refused.options.resume_path = Path(spec, 1);
  const absl::Status status = refused.Train(*host_, spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("step-00000004, step-00000003, step-00000002"),
                                     HasSubstr("--discard-newer")));
  EXPECT_THAT(Steps(spec), ElementsAre(4, 3, 2, 1));

  HookedRun discarding;
  discarding.options = refused.options;
  discarding.options.discard_newer = true;
  const std::string before =
      *ReadWholeFile(PosixFileSystem(), Path(spec, 2) + "/manifest.json", kManifestBytesMax);
  discarding.before_checkpoint = [&](int64_t) {
    EXPECT_THAT(Steps(spec), ElementsAre(4, 3, 2, 1)) << "nothing goes before the new one is there";
  };
  ASSERT_TRUE(discarding.Train(*host_, spec).ok()) << discarding.run.status;
  EXPECT_THAT(Steps(spec), ElementsAre(2)) << "the run's own first one is pruned by keep";
  EXPECT_NE(*ReadWholeFile(PosixFileSystem(), Path(spec, 2) + "/manifest.json", kManifestBytesMax),
            before);
}

// Later ones of the run have the numbers of those that its first one has replaced.
TEST_F(ResumeTest, OnlyTheFirstSaveDiscards) {
  const JobSpec spec = TrainedJob("discarded");
  HookedRun run;
  run.options.resume = ResumeMode::kPath;
  run.options.resume_path = Path(spec, 1);
  run.options.discard_newer = true;
  ASSERT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
  EXPECT_THAT(Steps(spec), ElementsAre(4, 3, 2, 1));
}

TEST_F(ResumeTest, AnotherRunsCheckpointsStay) {
  const JobSpec other = TrainedJob("others");
  JobSpec spec = TrainedJob("ours");
  const std::string start = Path(spec, 2);
  spec.checkpoint.directory = other.checkpoint.directory;
  spec.checkpoint.keep = 1;
  HookedRun run;
  run.options.resume = ResumeMode::kPath;
  run.options.resume_path = start;
  EXPECT_THAT(Message(run.Train(*host_, spec).status()),
              HasSubstr("step-00000004 (of another run), step-00000003 (of another run);"));
  EXPECT_THAT(Steps(other), ElementsAre(4, 3, 2, 1));
  for (const int64_t step : {3, 4}) fs::remove_all(Path(other, step));
  HookedRun beside;
  beside.options = run.options;
  ASSERT_TRUE(beside.Train(*host_, spec).ok()) << beside.run.status;
  EXPECT_THAT(Steps(spec), ElementsAre(4, 2, 1)) << "of its own it keeps one";
}

TEST_F(ResumeTest, ADamagedOneIsPassedOverAndGoesWhenALaterOneIsThere) {
  JobSpec spec = TrainedJob("damaged");
  {
    std::fstream file(Path(spec, 4) + "/model.safetensors.index.json",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.put('?');
  }
  spec.training.steps = 6;
  spec.checkpoint.every_steps = 5;
  spec.checkpoint.keep = 2;
  HookedRun run;
  run.before_checkpoint = [&](int64_t step) {
    // The damaged one stays until a later one is there, and does not count.
    EXPECT_EQ(Steps(spec),
              step == 5 ? (std::vector<int64_t>{4, 3, 2, 1}) : (std::vector<int64_t>{5, 3}));
  };
  run.started = [](int64_t first_step) { EXPECT_EQ(first_step, 4); };
  EXPECT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
  EXPECT_THAT(Steps(spec), ElementsAre(6, 5));
}

// The template writes the day. The run began on another one than today.
TEST_F(ResumeTest, AResumedRunSeesTheDayOnWhichItBegan) {
  JobSpec spec = HookedJob("day");
  const std::string directory = fs::path(spec.checkpoint.directory).parent_path().string();
  std::ofstream(directory + "/day.jinja")
      << "{{ strftime_now('%Y-%m-%d') }}{% for m in messages %}{{ m.content }};{% endfor %}";
  std::ofstream(directory + "/chats.jsonl") << R"({"instruction": "q", "output": "abc"})"
                                            << "\n";
  spec.data.train = {{directory + "/chats.jsonl", DataFormat::kAlpaca, ""}};
  spec.data.eval.clear();
  spec.data.chat_template = directory + "/day.jinja";
  spec.data.tokenizer = "bytes";
  spec.data.template_date = "2020-05-17";
  spec.training.steps = 2;
  {
    HookedRun run;
    ASSERT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
  }
  // As a job that leaves the day open has it in its checkpoints.
  spec.data.template_date = "";
  spec.training.steps = 3;
  HookedRun resumed;
  resumed.started = [](int64_t first_step) { EXPECT_EQ(first_step, 3); };
  ASSERT_TRUE(resumed.Train(*host_, spec).ok()) << resumed.run.status;
  EXPECT_EQ(ReadCheckpointState(Path(spec, 3))->spec["data.template_date"], "2020-05-17");
  spec.training.steps = 4;
  HookedRun by_path;
  by_path.options.resume = ResumeMode::kPath;
  by_path.options.resume_path = Path(spec, 3);
  ASSERT_TRUE(by_path.Train(*host_, spec).ok()) << by_path.run.status;
  // The process died while the only checkpoint was moved aside for one of the same step.
  for (const int64_t step : {2, 3}) fs::remove_all(Path(spec, step));
  fs::rename(Path(spec, 4), JoinPath(spec.checkpoint.directory, ReplacedDirectoryName(4, 4)));
  spec.training.steps = 5;
  HookedRun given_back;
  given_back.started = [](int64_t first_step) { EXPECT_EQ(first_step, 5); };
  ASSERT_TRUE(given_back.Train(*host_, spec).ok()) << given_back.run.status;
  EXPECT_THAT(given_back.run.messages, Contains(HasSubstr("its name back")));
  spec.data.template_date = "2020-05-18";
  HookedRun other;
  EXPECT_THAT(Message(other.Train(*host_, spec).status()),
              HasSubstr("data.template_date differs: the checkpoint has 2020-05-17, the job "
                        "2020-05-18"));
}

// The last step of a run that is given in epochs has fewer sequences.
TEST_F(ResumeTest, MoreEpochsVisitEverySequenceAgain) {
  JobSpec spec = HookedJob("epochs");
  spec.training.steps = 0;
  spec.training.epochs = 1;
  spec.training.global_batch = 1;
  HookedRun counted;  // a step a sequence
  ASSERT_TRUE(counted.Train(*host_, spec).ok()) << counted.run.status;
  const int64_t sequences = counted.run.records.back().step;
  const int64_t tokens = counted.run.records.back().total_tokens;
  ASSERT_GT(sequences, 2);

  spec.checkpoint.directory = FreshDirectory("extended");
  spec.training.global_batch = sequences - 1;  // the second step has one sequence
  for (int64_t epochs = 1; epochs <= 3; ++epochs) {
    SCOPED_TRACE(epochs);
    spec.training.epochs = static_cast<double>(epochs);
    HookedRun run;
    ASSERT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
    EXPECT_EQ(run.run.records.size(), 2u);
    EXPECT_EQ(run.run.records.back().total_tokens, epochs * tokens);
    const auto state = ReadCheckpointState(Path(spec, 2 * epochs));
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(state->data_position, epochs * sequences);
    EXPECT_EQ(state->steps_total, 2 * epochs);
    HookedRun again;
    ASSERT_TRUE(again.Train(*host_, spec).ok()) << again.run.status;
    EXPECT_TRUE(again.run.records.empty());
  }
}

TEST_F(ResumeTest, MoreStepsTellWhatHappensToTheLearningRate) {
  JobSpec spec = HookedJob("longer");
  spec.training.steps = 2;
  spec.schedule.type = ScheduleType::kLinear;
  spec.schedule.warmup_steps = 0;
  spec.schedule.final_fraction = 0;
  spec.optimizer.learning_rate = 1e-3;
  HookedRun first;
  ASSERT_TRUE(first.Train(*host_, spec).ok()) << first.run.status;
  const auto told = HasSubstr("the learning rate follows schedule.type linear to step 4, and is ");
  EXPECT_THAT(first.run.messages, Not(Contains(told)));
  spec.training.steps = 4;
  HookedRun longer;
  ASSERT_TRUE(longer.Train(*host_, spec).ok()) << longer.run.status;
  EXPECT_THAT(longer.run.messages,
              Contains("the run has 4 steps now and had 2 when the checkpoint was written: the "
                       "learning rate follows schedule.type linear to step 4, and is 0.00025 in "
                       "step 3 (0 in step 2 of 2)"));
  EXPECT_DOUBLE_EQ(longer.run.records.at(0).learning_rate, 2.5e-4);
  HookedRun again;
  ASSERT_TRUE(again.Train(*host_, spec).ok()) << again.run.status;
  EXPECT_THAT(again.run.messages, Not(Contains(told)));
}

TEST_F(ResumeTest, PathsMayChangeWhenContentsDoNot) {
  JobSpec plain = HookedJob("stay");
  HookedRun undisturbed;
  ASSERT_TRUE(undisturbed.Train(*host_, plain).ok()) << undisturbed.run.status;

  JobSpec spec = HookedJob("move");
  spec.training.steps = 2;
  HookedRun first;
  ASSERT_TRUE(first.Train(*host_, spec).ok()) << first.run.status;
  const std::string elsewhere = FreshDirectory("elsewhere");
  fs::copy(spec.model.path, elsewhere + "/model");
  fs::copy(spec.checkpoint.directory, elsewhere + "/checkpoints", fs::copy_options::recursive);
  spec.model.path = elsewhere + "/model";
  spec.checkpoint.directory = elsewhere + "/checkpoints";
  spec.data.cache_directory = elsewhere + "/cache";
  for (DataFile& file : spec.data.train) {
    const std::string copy = elsewhere + "/copied-" + fs::path(file.path).filename().string();
    fs::copy(file.path, copy);
    file.path = copy;
  }
  spec.training.steps = kHookedSteps;
  HookedRun moved;
  moved.started = [](int64_t first_step) { EXPECT_EQ(first_step, 3); };
  ASSERT_TRUE(moved.Train(*host_, spec).ok()) << moved.run.status;
  ExpectSameFiles(spec, plain);

  // One byte of the data is another.
  std::fstream data(spec.data.train[0].path, std::ios::in | std::ios::out | std::ios::binary);
  const int byte = data.get();
  data.seekp(0);
  data.put(static_cast<char>(byte ^ 1));
  data.close();
  spec.training.steps = kHookedSteps + 1;
  HookedRun changed;
  EXPECT_THAT(Message(changed.Train(*host_, spec).status()), HasSubstr("data"));
}

TEST_F(ResumeTest, WhatCannotBeReadEndsTheRunAndNothingIsRemoved) {
  JobSpec spec = TrainedJob("unreadable");
  spec.checkpoint.keep = 1;
  spec.training.steps = 6;
  for (const int error : {EIO, EMFILE, EACCES, ENOMEM, ESTALE}) {
    SCOPED_TRACE(std::strerror(error));
    UnreadableFileSystem files(Path(spec, 4), error);
    HookedRun run;
    run.options.files = &files;
    const absl::Status status = run.Train(*host_, spec).status();
    EXPECT_EQ(status.code(),
              error == EACCES ? absl::StatusCode::kPermissionDenied : absl::StatusCode::kInternal);
    EXPECT_THAT(Message(status), AllOf(HasSubstr(Path(spec, 4)), HasSubstr(std::strerror(error))));
    EXPECT_THAT(Steps(spec), ElementsAre(4, 3, 2, 1));
  }
  HookedRun run;
  run.started = [](int64_t first_step) { EXPECT_EQ(first_step, 5); };
  EXPECT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
}

TEST_F(ResumeTest, ABestThatCannotBeReadEndsTheRunAndIsNotGivenUp) {
  JobSpec spec = HookedJob("unreadable_best");
  spec.training.steps = 3;
  spec.training.eval_every = 1;
  spec.data.eval_fraction = 0.1;
  spec.training.keep_best = true;
  spec.checkpoint.keep = 1;
  spec.optimizer.learning_rate = 0;  // the first evaluation stays the best
  HookedRun first;
  ASSERT_TRUE(first.Train(*host_, spec).ok()) << first.run.status;
  ASSERT_THAT(Steps(spec), ElementsAre(3, 1));
  spec.training.steps = 4;
  UnreadableFileSystem files(Path(spec, 1), EIO);
  HookedRun unread;
  unread.options.files = &files;
  const absl::Status status = unread.Train(*host_, spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(Message(status), HasSubstr(Path(spec, 1)));
  EXPECT_THAT(Steps(spec), ElementsAre(3, 1));
  HookedRun read;
  ASSERT_TRUE(read.Train(*host_, spec).ok()) << read.run.status;
  EXPECT_THAT(Steps(spec), ElementsAre(4, 1));
}

TEST_F(ResumeTest, APositionThatTheStepsCannotHaveReachedIsDamage) {
  JobSpec spec = TrainedJob("position");
  absl::StatusOr<Manifest> manifest = ReadManifest(Path(spec, 4), PosixFileSystem());
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  manifest->state.data_position = 5 * spec.training.global_batch;
  std::ofstream(Path(spec, 4) + "/manifest.json") << SerializeManifest(*manifest);
  spec.training.steps = 6;
  HookedRun run;
  const absl::Status status = run.Train(*host_, spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(Message(status), HasSubstr("more sequences than 4 steps visit"));
  EXPECT_THAT(run.events, ::testing::IsEmpty());
}

TEST_F(ResumeTest, OneThatReplacedADamagedOneIsKept) {
  JobSpec spec = TrainedJob("mended");
  {
    std::fstream file(Path(spec, 4) + "/model.safetensors.index.json",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.put('?');
  }
  spec.training.steps = 6;
  spec.checkpoint.keep = 3;
  HookedRun run;
  run.started = [](int64_t first_step) { EXPECT_EQ(first_step, 4); };
  ASSERT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
  EXPECT_THAT(Steps(spec), ElementsAre(6, 5, 4));
}

}  // namespace
}  // namespace megatrain
