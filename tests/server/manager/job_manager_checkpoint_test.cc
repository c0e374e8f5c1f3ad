#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/file.h"
#include "engine/base/watched_file_system.h"
#include "engine/checkpoint/manifest.h"
#include "engine/hf/hf_format.h"
#include "server/manager/job_manager.h"
#include "tests/server/manager/job_manager_fixture.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using S = JobState;

TEST_F(JobManagerTest, CheckpointNeedsARunningJobAndARunner) {
  const std::string id = Submit(kAnna)->id;
  EXPECT_EQ(Refusal(manager_->Checkpoint(kAnna, id).status()),
            "FAILED_PRECONDITION ILLEGAL_TRANSITION");
  Move(id, {S::kPreparing, S::kRunning});
  asked_ = WithReason(absl::UnavailableError("the daemon is starting"), v1::STARTING);
  EXPECT_EQ(Refusal(manager_->Checkpoint(kAnna, id).status()), "UNAVAILABLE STARTING");
  asked_ = absl::OkStatus();
  EXPECT_TRUE(manager_->Checkpoint(kAnna, id).ok());
  EXPECT_THAT(checkpointed_, ElementsAre(id));
  asked_ = absl::NotFoundError("it has just ended");
  EXPECT_EQ(Refusal(manager_->Checkpoint(kAnna, id).status()),
            "FAILED_PRECONDITION ILLEGAL_TRANSITION");
}

TEST_F(JobManagerTest, CheckpointsAreListedAndExported) {
  const JobPtr job = Submit(kAnna);
  const auto nothing = [](const absl::Status&) {};
  EXPECT_THAT(*manager_->ListCheckpoints(kAnna, job->id), IsEmpty());
  EXPECT_EQ(Refusal(manager_->Export(kAnna, job->id, 0, directory_ / "out", nothing).status()),
            "NOT_FOUND CHECKPOINT_NOT_FOUND");
  const std::string checkpoints = job->spec->checkpoint.directory;
  for (const std::string name : {"step-00000020", "step-00000100", "step-00000200.tmp"}) {
    fs::create_directories(checkpoints + "/" + name);
    std::ofstream(checkpoints + "/" + name + "/manifest.json") << "{...}";
  }
  std::ofstream(checkpoints + "/step-00000100/tile") << "1234567";
  const auto listed = manager_->ListCheckpoints(kAnna, job->id);
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_EQ(listed->size(), 2u);
  EXPECT_EQ((*listed)[0].step, 100);
  EXPECT_EQ((*listed)[0].directory, checkpoints + "/step-00000100");
  EXPECT_EQ((*listed)[0].bytes, 12);
  EXPECT_GT((*listed)[0].changed, absl::Now() - absl::Hours(1));
  EXPECT_EQ((*listed)[1].step, 20);

  absl::Status done = absl::UnknownError("");
  EXPECT_EQ(
      manager_->Export(kAnna, job->id, 0, directory_ / "out", [&](const auto& s) { done = s; })
          ->step,
      100);
  EXPECT_TRUE(done.ok());
  EXPECT_EQ(manager_->Export(kAnna, job->id, 20, directory_ / "out", nothing)->step, 20);
  EXPECT_THAT(exported_, ElementsAre(checkpoints + "/step-00000100 to " + (directory_ / "out"),
                                     checkpoints + "/step-00000020 to " + (directory_ / "out")));
  fs::create_directory(directory_ / "empty");
  EXPECT_TRUE(manager_->Export(kAnna, job->id, 0, directory_ / "empty", nothing).ok());
  EXPECT_EQ(
      Refusal(
          manager_->Export(kAnna, job->id, 0, directory_ / "train.jsonl/out", nothing).status()),
      "INVALID_ARGUMENT INVALID_FIELD");
  for (const std::string& taken : {checkpoints, checkpoints + "/step-00000020/manifest.json"}) {
    EXPECT_EQ(Refusal(manager_->Export(kAnna, job->id, 0, taken, nothing).status()),
              "FAILED_PRECONDITION OUTPUT_EXISTS");
  }
  EXPECT_EQ(Refusal(manager_->Export(kAnna, job->id, 7, directory_ / "out", nothing).status()),
            "NOT_FOUND CHECKPOINT_NOT_FOUND");
  EXPECT_EQ(Refusal(manager_->Export(kAnna, job->id, 0, "out", nothing).status()),
            "INVALID_ARGUMENT INVALID_FIELD");
  EXPECT_EQ(Refusal(manager_->Export(kAnna, job->id, 0, "", nothing).status()),
            "INVALID_ARGUMENT INVALID_FIELD");
  asked_ = WithReason(absl::UnavailableError("the daemon is starting"), v1::STARTING);
  EXPECT_EQ(Refusal(manager_->Export(kAnna, job->id, 0, directory_ / "out", nothing).status()),
            "UNAVAILABLE STARTING");
}

TEST_F(JobManagerTest, CheckpointsOfAJobWhoseFileIsNotUnderstoodAnyMoreAreListed) {
  Job job;
  job.id = ledger_->NewId();
  job.uid = kAnna.uid;
  JobFile file = TestFile();
  file.yaml += "future_key: 1\n";
  job.file = std::make_shared<const JobFile>(file);
  const JobPtr added = *ledger_->Add(job, "");
  ASSERT_EQ(added->spec, nullptr);
  const std::string step = directory_ / ("state/jobs/" + added->id + "/checkpoints/step-00000020");
  fs::create_directories(step);
  std::ofstream(step + "/manifest.json") << "{...}";
  const auto listed = manager_->ListCheckpoints(kAnna, added->id);
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_EQ(listed->size(), 1u);
  EXPECT_EQ((*listed)[0].step, 20);
  EXPECT_EQ((*listed)[0].directory, step);
}

TEST_F(JobManagerTest, TheNewestCheckpointSaysWhichIsTheBest) {
  const JobPtr job = Submit(kAnna);
  const auto save = [&](int64_t step, const Evaluations& evaluations) {
    Manifest manifest;
    manifest.tiles = 1;
    manifest.state.step = step;
    manifest.state.evaluations = evaluations;
    for (const std::string& name : manifest.TileFileNames(0)) {
      manifest.files.push_back({name, 1, std::string(32, 'a'), ""});
    }
    manifest.files.push_back({kHfIndexFileName, 1, std::string(32, 'a'), ""});
    const std::string directory =
        job->spec->checkpoint.directory + absl::StrFormat("/step-%08d", step);
    fs::create_directories(directory);
    std::ofstream(directory + "/manifest.json") << SerializeManifest(manifest);
  };
  save(20, {20, 2.5, 0, 20, 2.5});
  save(40, {30, 2.25, 1, 20, 2.5});  // that of step 30 could not be saved
  const auto listed = manager_->ListCheckpoints(kAnna, job->id);
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_EQ(listed->size(), 2u);
  EXPECT_EQ((*listed)[0].best_eval_loss, std::nullopt);
  EXPECT_EQ((*listed)[1].step, 20);
  EXPECT_EQ((*listed)[1].best_eval_loss, 2.5);
}

TEST_F(JobManagerTest, TheExportsOfACallerAreBounded) {
  const JobPtr job = Submit(kAnna);
  fs::create_directories(job->spec->checkpoint.directory + "/step-00000020");
  std::ofstream(job->spec->checkpoint.directory + "/step-00000020/manifest.json") << "{...}";
  const auto refusal = [&](const Caller& caller) {
    const auto nothing = [](const absl::Status&) {};
    return Refusal(manager_->Export(caller, job->id, 0, directory_ / "out", nothing).status());
  };
  const std::string kAccepted = "OK without reason";
  holds_exports_ = true;
  while (refusal(kAnna) == kAccepted && held_exports_.size() < 100) continue;
  EXPECT_EQ(held_exports_.size(), 4u);
  EXPECT_EQ(refusal(kAnna), "RESOURCE_EXHAUSTED LIMIT_REACHED");
  EXPECT_EQ(refusal(kRoot), kAccepted) << "another's are not counted";
  held_exports_.pop_back();
  held_exports_.pop_back();
  EXPECT_EQ(refusal(kAnna), kAccepted);
  EXPECT_EQ(refusal(kAnna), "RESOURCE_EXHAUSTED LIMIT_REACHED");
}

TEST_F(JobManagerTest, ExportsThatDidNotBeginAreNotCounted) {
  const JobPtr job = Submit(kAnna);
  fs::create_directories(job->spec->checkpoint.directory + "/step-00000020");
  std::ofstream(job->spec->checkpoint.directory + "/step-00000020/manifest.json") << "{...}";
  const auto refusal = [&](const std::string& directory) {
    const auto nothing = [](const absl::Status&) {};
    return Refusal(manager_->Export(kAnna, job->id, 0, directory_ / directory, nothing).status());
  };
  holds_exports_ = true;
  asked_ = WithReason(absl::UnavailableError("the daemon is starting"), v1::STARTING);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(refusal("out"), "UNAVAILABLE STARTING");
    EXPECT_EQ(refusal("train.jsonl"), "FAILED_PRECONDITION OUTPUT_EXISTS");
  }
  asked_ = absl::OkStatus();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(refusal("out"), "OK without reason") << i;
}

class ReadOnlyFileSystem : public WatchedFileSystem {
 public:
  ReadOnlyFileSystem() : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }) {}
  absl::Status CheckWritable(const std::string& path) override {
    return absl::PermissionDeniedError(path + " is not yours");
  }
};

TEST_F(JobManagerTest, WhatTheSubmitterMayNotDoIsNotPermitted) {
  const JobPtr job = Submit(kAnna);
  fs::create_directories(job->spec->checkpoint.directory + "/step-00000020");
  std::ofstream(job->spec->checkpoint.directory + "/step-00000020/manifest.json") << "{...}";
  absl::StatusOr<std::shared_ptr<FileSystem>> files = std::make_shared<ReadOnlyFileSystem>();
  JobManager manager(
      ledger_.get(),
      JobManager::Options{.plan = [this](const JobSpec&, FileSystem*) { return plan_; },
                          .files = [&](int64_t, const std::string&) { return files; }});
  const absl::Status refused =
      manager.Export(kAnna, job->id, 0, directory_ / "out", [](const absl::Status&) {}).status();
  EXPECT_EQ(Refusal(refused), "PERMISSION_DENIED NOT_PERMITTED");
  EXPECT_THAT(ReasonOf(refused)->metadata, ElementsAre(Pair("field", "directory")));
  for (const absl::Status& status : {absl::NotFoundError("there is no account"),
                                     absl::PermissionDeniedError("not for others")}) {
    files = status;
    EXPECT_EQ(Refusal(manager.ListCheckpoints(kAnna, job->id).status()),
              "PERMISSION_DENIED NOT_PERMITTED");
  }
  files = absl::UnavailableError("accounts cannot be looked up");
  EXPECT_EQ(Refusal(manager.ListCheckpoints(kAnna, job->id).status()),
            "UNAVAILABLE without reason");
}

TEST_F(JobManagerTest, AnAdministratorReachesAJobsFilesWithItsSubmittersRights) {
  const JobPtr job = Submit(kAnna);
  const std::string step = job->spec->checkpoint.directory + "/step-00000020";
  fs::create_directories(step);
  std::ofstream(step + "/manifest.json") << "{...}";
  opened_.clear();
  EXPECT_EQ(manager_->ListCheckpoints(kRoot, job->id)->size(), 1u);
  EXPECT_TRUE(
      manager_->Export(kRoot, job->id, 0, directory_ / "out", [](const absl::Status&) {}).ok());
  EXPECT_GE(opened_.size(), 2u);
  EXPECT_THAT(opened_, Each(Pair(kAnna.uid, job->id)));
}

}  // namespace
}  // namespace megatrain
