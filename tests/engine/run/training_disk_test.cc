// Runs that meet a full disk, or one that fails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/watched_file_system.h"
#include "engine/engine.h"
#include "tests/engine/numerics/job_run.h"
#include "tests/engine/run/full_disk_file_system.h"
#include "tests/engine/run/hooked_run.h"

namespace megatrain {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsSupersetOf;
using ::testing::Not;

class FullDiskTest : public ::testing::Test {
 protected:
  FullDiskFileSystem disk_{PosixFileSystem()};
  std::unique_ptr<EngineHost> host_ = HostWithPool(&disk_);
};

TEST_F(FullDiskTest, PausesAndGoesOnWhenThereIsRoom) {
  const JobSpec plain = HookedJob("plain_full");
  HookedRun undisturbed;
  ASSERT_TRUE(undisturbed.Train(*host_, plain).ok()) << undisturbed.run.status;
  // The operation at which the disk fills up: in a save beside steps, in the last save.
  for (int64_t after : {0, 1, 3, 9}) {
    for (int64_t every : {0, 2}) {
      SCOPED_TRACE(absl::StrCat("full after ", after, " operations, saved every ", every));
      JobSpec spec = HookedJob("full");
      spec.checkpoint.every_steps = every;
      HookedRun hooked;
      hooked.options.pause_on_full_disk = true;
      int pauses = 0;
      hooked.paused = [&](const TrainingPause& pause) {
        EXPECT_TRUE(IsDiskFull(pause.status)) << pause.status;
        EXPECT_EQ(pause.directory, spec.checkpoint.directory);
        EXPECT_GT(pause.disk_bytes, 0);
        if (++pauses == 2) disk_.MakeRoom();  // once tried in vain
        hooked.control.Resume();
      };
      disk_.FillAfter(after);
      const auto outcome = hooked.Train(*host_, spec);
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      EXPECT_EQ(*outcome, TrainingOutcome::kFinished);
      EXPECT_EQ(pauses, 2);
      ExpectSameRecords(hooked.run, undisturbed.run);
      ExpectSameFiles(spec, plain);
    }
  }
}

TEST_F(FullDiskTest, TheOutputWaitsForRoomToo) {
  JobSpec spec = HookedJob("full_output");
  spec.output.directory = FreshDirectory("full_output_model") + "/model";
  const int64_t parameters = PlanTraining(spec)->parameters;
  HookedRun hooked;
  hooked.options.pause_on_full_disk = true;
  hooked.activity = [&](const TrainingActivity& now) {
    if (absl::StrContains(now.what, "output") && hooked.events.back() != "started 5") {
      disk_.FillAfter(2);
    }
  };
  hooked.paused = [&](const TrainingPause& pause) {
    EXPECT_TRUE(IsDiskFull(pause.status)) << pause.status;
    EXPECT_EQ(pause.directory, spec.output.directory);
    EXPECT_EQ(pause.disk_bytes, 2 * parameters) << "in BF16";
    disk_.MakeRoom();
    hooked.control.Resume();
  };
  const auto outcome = hooked.Train(*host_, spec);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(hooked.events.back(), "started 5");
  EXPECT_TRUE(std::filesystem::exists(spec.output.directory + "/config.json"));
}

TEST_F(FullDiskTest, WithoutThatOptionItIsToldAndTheLastSaveFails) {
  JobSpec spec = HookedJob("full_told");
  spec.checkpoint.every_steps = 2;
  HookedRun hooked;
  disk_.FillAfter(0);
  const absl::Status status = hooked.Train(*host_, spec).status();
  disk_.MakeRoom();
  EXPECT_TRUE(IsDiskFull(status)) << status;
  EXPECT_THAT(hooked.events, ElementsAre("started 1", "checkpoint_failed 2", "step 1", "step 2",
                                         "step 3", "step 4"));
}

TEST_F(FullDiskTest, ARunThatCannotBeSavedIsNotReleased) {
  const JobSpec plain = HookedJob("plain_unreleased"), spec = HookedJob("unreleased");
  HookedRun undisturbed, hooked;
  ASSERT_TRUE(undisturbed.Train(*host_, plain).ok()) << undisturbed.run.status;
  hooked.options.pause_on_full_disk = true;
  hooked.step = [&](int64_t step) {
    if (step != 1) return;
    disk_.FillAfter(0);
    hooked.control.Release();
  };
  hooked.paused = [&](const TrainingPause& pause) {
    EXPECT_TRUE(IsDiskFull(pause.status)) << pause.status;
    EXPECT_LT(host_->pool_usage().free_bytes, kHookedPoolBytes);
    disk_.MakeRoom();
    hooked.control.Resume();
  };
  const auto outcome = hooked.Train(*host_, spec);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(*outcome, TrainingOutcome::kFinished);
  ExpectSameRecords(hooked.run, undisturbed.run);
  ExpectSameFiles(spec, plain);
}

// A manifest is not made before the test lets it.
class SlowManifests : public FullDiskFileSystem {
 public:
  using FullDiskFileSystem::FullDiskFileSystem;
  void LetThem() {
    let_ = true;
    let_.notify_all();
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override {
    if (absl::EndsWith(path, "manifest.json")) let_.wait(false);
    return FullDiskFileSystem::NewWritableFile(path);
  }

 private:
  std::atomic<bool> let_{false};
};

// A save goes on beside the steps after it; the run pauses, and only then the disk is full. What
// failed is the save's step, what is saved instead is the last step that was made.
TEST(FullDiskPauseTest, ASaveThatFailsWhilePausingIsOfItsOwnStep) {
  SlowManifests disk(PosixFileSystem());
  const auto host = HostWithPool(&disk);
  JobSpec spec = HookedJob("full_pausing");
  spec.training.steps = 8;
  spec.checkpoint.every_steps = 5;
  HookedRun hooked;
  hooked.options.pause_on_full_disk = true;
  int64_t done = 0, done_at_pause = 0;
  hooked.step = [&](int64_t step) {
    done = step;
    if (step == 6) hooked.control.Pause();
    if (step == 8) disk.LetThem();  // no pause came of it: the expectations below say so
  };
  int pauses = 0;
  hooked.paused = [&](const TrainingPause& pause) {
    if (++pauses == 1) {
      EXPECT_TRUE(pause.status.ok()) << pause.status;
      done_at_pause = done;
      disk.FillAfter(0);
      disk.LetThem();
      return;
    }
    EXPECT_TRUE(IsDiskFull(pause.status)) << pause.status;
    disk.MakeRoom();
    hooked.control.Resume();
  };
  const auto outcome = hooked.Train(*host, spec);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(pauses, 2);
  // Step 7 may have been under way when step 6 asked for the pause.
  ASSERT_THAT(done_at_pause, AnyOf(6, 7));
  EXPECT_THAT(
      hooked.events,
      IsSupersetOf({std::string("paused"), std::string("checkpoint_failed 5"),
                    std::string("paused itself"), absl::StrCat("checkpoint ", done_at_pause),
                    std::string("checkpoint 8")}));
  EXPECT_THAT(hooked.events, Not(Contains("checkpoint 5")));
  EXPECT_THAT(hooked.events, Not(Contains(absl::StrCat("checkpoint_failed ", done_at_pause))));
}

TEST_F(FullDiskTest, CancelEndsThePause) {
  const JobSpec spec = HookedJob("full_cancelled");
  HookedRun hooked;
  hooked.options.pause_on_full_disk = true;
  hooked.paused = [&](const TrainingPause&) { hooked.control.Cancel(); };
  disk_.FillAfter(0);
  const auto outcome = hooked.Train(*host_, spec);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(*outcome, TrainingOutcome::kCancelled);
  ExpectPoolWhole(*host_);
}

// A disk that has room and fails nevertheless.
class BrokenDisk : public WatchedFileSystem {
 public:
  BrokenDisk() : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }) {}

  absl::StatusOr<std::unique_ptr<WritableFile>> NewWritableFile(const std::string& path) override {
    if (broken) return FileError("create", path, EIO);
    return WatchedFileSystem::NewWritableFile(path);
  }

  std::atomic<bool> broken{false};
};

class BrokenDiskTest : public ::testing::Test {
 protected:
  BrokenDisk disk_;
  std::unique_ptr<EngineHost> host_ = HostWithPool(&disk_);
};

// Room would not mend it: the run does not wait for any.
TEST_F(BrokenDiskTest, ASaveThatFailsIsToldAndTheRunGoesOn) {
  JobSpec spec = HookedJob("broken");
  spec.checkpoint.every_steps = 2;
  HookedRun hooked;
  hooked.options.pause_on_full_disk = true;
  hooked.started = [&](int64_t) { disk_.broken = true; };
  hooked.step = [&](int64_t step) {
    if (step == 3) disk_.broken = false;
  };
  hooked.paused = [&](const TrainingPause&) { hooked.control.Cancel(); };
  const auto outcome = hooked.Train(*host_, spec);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(*outcome, TrainingOutcome::kFinished);
  EXPECT_THAT(hooked.events, ElementsAre("started 1", "checkpoint_failed 2", "step 1", "step 2",
                                         "step 3", "step 4", "checkpoint 4"));
}

// The memory is all that holds its state, whatever keeps it from being saved.
TEST_F(BrokenDiskTest, ARunThatCannotBeSavedStandsStillInsteadOfBeingReleased) {
  const JobSpec plain = HookedJob("plain_kept"), spec = HookedJob("kept");
  HookedRun undisturbed, hooked;
  ASSERT_TRUE(undisturbed.Train(*host_, plain).ok()) << undisturbed.run.status;
  hooked.step = [&](int64_t step) {
    if (step != 1) return;
    disk_.broken = true;
    hooked.control.Release();
  };
  int pauses = 0;
  hooked.paused = [&](const TrainingPause& pause) {
    ++pauses;
    EXPECT_EQ(pause.status.code(), absl::StatusCode::kInternal) << pause.status;
    EXPECT_EQ(pause.directory, spec.checkpoint.directory);
    EXPECT_LT(host_->pool_usage().free_bytes, kHookedPoolBytes);
    disk_.broken = false;
    hooked.control.Resume();
  };
  const auto outcome = hooked.Train(*host_, spec);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(*outcome, TrainingOutcome::kFinished);
  EXPECT_EQ(pauses, 1);
  ExpectSameRecords(hooked.run, undisturbed.run);
  ExpectSameFiles(spec, plain);
}

// Whoever stops it must know that its last steps are lost.
TEST_F(BrokenDiskTest, AStopThatCannotSaveFails) {
  const JobSpec spec = HookedJob("unstopped");
  HookedRun hooked;
  hooked.step = [&](int64_t step) {
    if (step != 1) return;
    disk_.broken = true;
    hooked.control.Stop();
  };
  const absl::Status status = hooked.Train(*host_, spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_FALSE(HasCheckpoint(spec));
  ExpectPoolWhole(*host_);
}

}  // namespace
}  // namespace megatrain
