// The checkpoint that a run goes on from, and the runs that are refused because of what lies in
// their directory.
#include "engine/run/start/resume_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/manifest.h"
#include "engine/engine.h"
#include "engine/job/spec_values.h"
#include "tests/engine/numerics/job_run.h"
#include "tests/engine/run/hooked_run.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

std::vector<int64_t> Steps(const JobSpec& spec) { return *ListSteps(spec.checkpoint.directory); }

std::string Path(const JobSpec& spec, int64_t step) {
  return JoinPath(spec.checkpoint.directory, StepDirectoryName(step));
}

// Changes a bit of a file, `from_end` bytes before its end.
void Damage(const std::string& path, int64_t from_end) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(-from_end, std::ios::end);
  const int byte = file.get();
  file.seekp(-from_end, std::ios::end);
  file.put(static_cast<char>(byte ^ 1));
}

class ResumePointTest : public ::testing::Test {
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
  // Expects that a run with these options is refused before its first step, and that all
  // checkpoints stay.
  absl::Status Refused(const JobSpec& spec, const TrainingOptions& options) {
    HookedRun run;
    run.options = options;
    const absl::Status status = run.Train(*host_, spec).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(run.events, IsEmpty());
    EXPECT_THAT(Steps(spec), ElementsAre(4, 3, 2, 1));
    return status;
  }
  static TrainingOptions FromPath(const std::string& path) {
    TrainingOptions options;
    options.resume = ResumeMode::kPath;
    options.resume_path = path;
    return options;
  }

  std::unique_ptr<EngineHost> host_ = HostWithPool();
};

TEST_F(ResumePointTest, NeverIsRefusedWhereThereIsACheckpoint) {
  JobSpec spec = TrainedJob("never");
  spec.training.steps = 6;
  TrainingOptions never;
  never.resume = ResumeMode::kNever;
  const absl::Status status = Refused(spec, never);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(Message(status), HasSubstr("--resume never: " + Path(spec, 4)));
  spec.checkpoint.directory = FreshDirectory("never_new") + "/checkpoints";
  HookedRun anew;
  anew.options = never;
  anew.started = [](int64_t first_step) { EXPECT_EQ(first_step, 1); };
  EXPECT_TRUE(anew.Train(*host_, spec).ok()) << anew.run.status;
}

TEST_F(ResumePointTest, WhereEveryCheckpointIsDamagedNothingBeginsAnew) {
  JobSpec spec = TrainedJob("all_damaged");
  for (const int64_t step : {1, 2, 3, 4}) {
    Damage(Path(spec, step) + "/model.safetensors.index.json", /*from_end=*/10);
  }
  spec.training.steps = 6;
  const absl::Status status = Refused(spec, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr(absl::StrCat("every checkpoint in ", spec.checkpoint.directory,
                                           " is damaged")),
                    HasSubstr(Path(spec, 4))));
}

// The tiles are read when the choice is made. One that is named is not replaced by another.
TEST_F(ResumePointTest, DamageThatIsFoundWhileLoadingSendsTheRunBack) {
  JobSpec spec = TrainedJob("tile_damaged");
  Damage(Path(spec, 4) + "/" + CheckpointTensorFiles(spec).rbegin()->first, /*from_end=*/100);
  spec.training.steps = 5;
  const absl::Status named = Refused(spec, FromPath(Path(spec, 4)));
  EXPECT_EQ(named.code(), absl::StatusCode::kDataLoss) << named;
  EXPECT_THAT(Message(named), HasSubstr(Path(spec, 4)));

  HookedRun run;
  run.started = [](int64_t first_step) { EXPECT_EQ(first_step, 4); };
  ASSERT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;
  EXPECT_THAT(run.run.messages, Contains(HasSubstr("damaged checkpoint: " + Path(spec, 4))));
  EXPECT_THAT(run.run.messages,
              Contains(absl::StrCat("resuming from ", Path(spec, 3), " at step 3 of 5")));
  EXPECT_THAT(Steps(spec), ElementsAre(5, 4, 3, 2, 1));
  const absl::Status whole = VerifyCheckpoint(Path(spec, 4));
  EXPECT_TRUE(whole.ok()) << whole;
  JobSpec plain = HookedJob("tile_sound");
  plain.training.steps = 5;
  HookedRun undisturbed;
  ASSERT_TRUE(undisturbed.Train(*host_, plain).ok()) << undisturbed.run.status;
  ExpectSameFiles(spec, plain);
}

TEST_F(ResumePointTest, APathWithoutACheckpointIsNotFound) {
  JobSpec spec = TrainedJob("no_path");
  spec.training.steps = 6;
  const absl::Status status = Refused(spec, FromPath(Path(spec, 5)));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_THAT(Message(status), HasSubstr(Path(spec, 5)));
}

// Before the first step, and not after the steps that would then be lost.
TEST_F(ResumePointTest, AForeignFileInWhatIsToBeDiscardedIsFoundAtOnce) {
  JobSpec spec = TrainedJob("foreign");
  std::ofstream(Path(spec, 3) + "/notes.txt") << "of a user";
  TrainingOptions discarding = FromPath(Path(spec, 1));
  discarding.discard_newer = true;
  const absl::Status status = Refused(spec, discarding);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(Message(status), HasSubstr("notes.txt"));
  EXPECT_TRUE(std::filesystem::exists(Path(spec, 3) + "/notes.txt"));
}

// A job that leaves a new key alone goes on from checkpoints of before.
TEST_F(ResumePointTest, AKeyThatTheCheckpointDoesNotHaveHadItsDefault) {
  JobSpec spec = TrainedJob("older_version");
  absl::StatusOr<Manifest> manifest = ReadManifest(Path(spec, 4), PosixFileSystem());
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  std::map<std::string, std::string>& values = manifest->state.spec;
  const size_t before = values.size();
  for (const auto& [key, value] : SpecValues(JobSpec())) {
    const auto found = values.find(key);
    if (found != values.end() && found->second == value) values.erase(found);
  }
  ASSERT_LT(values.size(), before);
  ASSERT_TRUE(values.contains("data.sequence_length")) << "which is not the default here";
  std::ofstream(Path(spec, 4) + "/manifest.json") << SerializeManifest(*manifest);
  spec.training.steps = 5;
  HookedRun run;
  run.started = [](int64_t first_step) { EXPECT_EQ(first_step, 5); };
  ASSERT_TRUE(run.Train(*host_, spec).ok()) << run.run.status;

  // Without that one the checkpoint is of another length of sequences.
  spec = TrainedJob("other_length");
  manifest = ReadManifest(Path(spec, 4), PosixFileSystem());
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  manifest->state.spec.erase("data.sequence_length");
  std::ofstream(Path(spec, 4) + "/manifest.json") << SerializeManifest(*manifest);
  const absl::Status status = Refused(spec, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(Message(status), HasSubstr("data.sequence_length differs: the checkpoint has 1024"));
}

}  // namespace
}  // namespace megatrain
