// Jobs side by side on several devices.
#include "tests/server/scheduler/scheduler_fixture.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using S = JobState;

class SchedulerDevicesTest : public SchedulerTest {
 protected:
  SchedulerDevicesTest() {
    devices_ = 3;
    job_pool_bytes_ = 100;
    Restart();
  }

  std::string Event(const std::string& id) {
    return ledger_->table().Events(id, 1, 1000).back().text;
  }
  void RunToEnd(const std::string& id) {
    runner_->Running(id, 1, 100);
    runner_->End(id, RunEnd::Kind::kFinished);
    Round();
    EXPECT_EQ(State(id), S::kSucceeded);
  }
};

TEST_F(SchedulerDevicesTest, EachJobHasItsOwn) {
  const std::string one = Submit(), two = Submit(kBert, 0, 2), next = Submit();
  Round();
  EXPECT_EQ(runner_->request(one).devices, std::vector<int>{0});
  EXPECT_EQ(runner_->request(two).devices, (std::vector<int>{1, 2}));
  EXPECT_EQ(Event(two), "attempt 1 on cpu:1, cpu:2");
  EXPECT_THAT(Get(two)->devices, ElementsAre("cpu:1", "cpu:2"));
  EXPECT_EQ(State(next), S::kQueued);
  EXPECT_EQ(Get(next)->queue.text, "is next; waits for 1 of the 3 devices");
  RunToEnd(two);
  EXPECT_EQ(State(next), S::kPreparing);
  EXPECT_EQ(runner_->request(next).devices, std::vector<int>{1});
}

TEST_F(SchedulerDevicesTest, APausedJobGetsItsOwnBackAndNoOther) {
  const std::string one = Submit(), two = Submit();
  Round();
  runner_->Running(one, 1, 100);
  Round();
  ASSERT_TRUE(manager_->Pause(kAnna, one, false).ok());
  Round();
  runner_->Paused(one);
  Round();
  ASSERT_EQ(State(one), S::kPaused);
  const std::string elsewhere = Submit();
  Round();
  EXPECT_EQ(runner_->request(elsewhere).devices, std::vector<int>{2}) << "0 is left to the paused";
  const std::string there = Submit();
  Round();
  EXPECT_EQ(runner_->request(there).devices, std::vector<int>{0}) << "there is no other";
  RunToEnd(two);
  ASSERT_TRUE(manager_->Resume(kAnna, one).ok());
  Round();
  EXPECT_EQ(State(one), S::kQueued);
  EXPECT_EQ(Get(one)->queue.text, "is next on cpu:0; another job is there");
  const std::string last = Submit();
  Round();
  EXPECT_EQ(runner_->request(last).devices, std::vector<int>{1}) << "it is nobody's";
  RunToEnd(there);
  EXPECT_EQ(State(one), S::kPreparing);
  EXPECT_THAT(runner_->Asked(), ::testing::Contains("resume " + one));
}

TEST_F(SchedulerDevicesTest, APausedJobOfTwoDevicesWaitsForBoth) {
  const std::string two = Submit(kAnna, 0, 2);
  Round();
  runner_->Running(two, 1, 100);
  Round();
  ASSERT_TRUE(manager_->Pause(kAnna, two, false).ok());
  Round();
  runner_->Paused(two);
  Round();
  const std::string elsewhere = Submit(kBert), there = Submit(kBert);
  Round();
  EXPECT_EQ(runner_->request(elsewhere).devices, std::vector<int>{2});
  EXPECT_EQ(runner_->request(there).devices, std::vector<int>{0});
  ASSERT_TRUE(manager_->Resume(kAnna, two).ok());
  Round();
  EXPECT_EQ(State(two), S::kQueued);
  EXPECT_EQ(Get(two)->queue.text, "is next on cpu:0, cpu:1; another job is there");
  RunToEnd(there);
  EXPECT_EQ(State(two), S::kPreparing);
}

TEST_F(SchedulerDevicesTest, JobsThatWriteIntoOneDirectoryRunOneAfterTheOther) {
  const auto submit = [&](const char* key, const std::string& directory) {
    CreateJobOptions options;
    options.file = TestFile();
    options.file.overrides = {
        "model.path=" + (directory_ / "model"),
        "data.train=[{path: " + (directory_ / "train.jsonl") + ", format: alpaca}]",
        std::string(key) + "=" + (directory_ / directory)};
    const auto job = manager_->Create(kAnna, options);
    EXPECT_TRUE(job.ok()) << job.status();
    return (*job)->id;
  };
  for (const char* const key : {"checkpoint.directory", "output.directory"}) {
    const std::string one = submit(key, "same"), two = submit(key, "same"),
                      other = submit(key, "other");
    Round();
    EXPECT_EQ(State(one), S::kPreparing);
    EXPECT_EQ(State(other), S::kPreparing);
    EXPECT_EQ(State(two), S::kQueued);
    EXPECT_EQ(Get(two)->queue.waiting, WaitingReason::kBehindOthers);
    EXPECT_EQ(Get(two)->queue.text, absl::StrCat("another job has its ", key, ", ",
                                                 directory_ / "same", ", and has not ended"));
    RunToEnd(one);
    EXPECT_EQ(State(two), S::kPreparing);
    RunToEnd(two);
    RunToEnd(other);
  }
}

TEST_F(SchedulerDevicesTest, UseIsOfEachDeviceAlsoAfterARestart) {
  const std::string annas = Submit(kAnna, 0, 3);
  Round();
  now_ += absl::Hours(1);
  RunToEnd(annas);
  const std::string berts = Submit(kBert);
  Round();
  const std::string annas_next = Submit(kAnna, 0, 3), berts_next = Submit(kBert, 0, 3);
  now_ += absl::Hours(2);
  RunToEnd(berts);
  EXPECT_EQ(State(berts_next), S::kPreparing) << "anna has had three devices for an hour";
  Restart();
  Round();
  EXPECT_EQ(State(berts_next), S::kPreparing);
  EXPECT_EQ(State(annas_next), S::kQueued);
}

TEST_F(SchedulerDevicesTest, WhileTheDaemonIsAwayNobodyUsesADevice) {
  const std::string berts = Submit(kBert, 0, 3);
  Round();
  now_ += absl::Hours(1);
  RunToEnd(berts);
  const std::string annas = Submit(kAnna, 0, 3);
  Round();
  const absl::Time started = now_;
  Kill();
  now_ += absl::Hours(10);
  Open(directory_ / "state");
  EXPECT_EQ(State(annas), S::kQueued);
  EXPECT_EQ(ledger_->table().Events(annas, 3, 1).at(0).time, started) << "the last that is known";
  EXPECT_EQ(Get(annas)->updated, now_);
  const std::string berts_next = Submit(kBert, 0, 3);
  Round();
  EXPECT_EQ(State(annas), S::kPreparing) << "bert has had three devices for an hour";
}

// The daemon was started again with a smaller one.
TEST_F(SchedulerDevicesTest, AJobIsJudgedByAPlanForThePoolThereIs) {
  job_pool_bytes_ = 20000;  // of 10000
  files_are_readable_ = false;
  const std::string id = Submit();
  Round();
  EXPECT_EQ(State(id), S::kQueued);
  EXPECT_EQ(Get(id)->queue.waiting, WaitingReason::kHostMemory);
  EXPECT_THAT(Get(id)->queue.text, HasSubstr("the daemon's pool has"));
  files_are_readable_ = true;
  planned_pool_bytes_ = 8000;
  now_ += absl::Seconds(30);
  Round();
  EXPECT_EQ(State(id), S::kPreparing);
  Restart();
  EXPECT_EQ(Get(id)->pool_bytes, 8000) << "as its run was started with";
}

TEST_F(SchedulerDevicesTest, TheMemoryOfACancelledJobCountsUntilTheRunnerHasLetItGo) {
  job_pool_bytes_ = 6000;
  const std::string id = Submit();
  Round();
  runner_->Running(id, 1, 100);
  Round();
  ASSERT_TRUE(manager_->Pause(kAnna, id, false).ok());
  Round();
  runner_->Paused(id);
  Round();
  ASSERT_TRUE(manager_->Resume(kAnna, id).ok());
  ASSERT_TRUE(manager_->Cancel(kAnna, id).ok());
  const std::string next = Submit(kBert);
  Round();
  EXPECT_EQ(State(id), S::kCancelled);
  EXPECT_EQ(State(next), S::kQueued) << "there are devices, and no memory yet";
  runner_->End(id, RunEnd::Kind::kCancelled);
  Round();
  EXPECT_EQ(State(next), S::kPreparing);
}

TEST_F(SchedulerDevicesTest, AJobGetsTheDevicesThatItNames) {
  first_device_ = "cuda:0";
  Restart();
  CreateJobOptions options;
  options.file = TestFile();
  options.file.overrides = {
      "model.path=" + (directory_ / "model"),
      "data.train=[{path: " + (directory_ / "train.jsonl") + ", format: alpaca}]",
      "engine.device=cuda:1", "engine.devices=2"};
  options.allow_change = {"optimizer"};
  const auto job = manager_->Create(kBert, options);
  ASSERT_TRUE(job.ok()) << job.status();
  Round();
  ASSERT_EQ(State((*job)->id), S::kPreparing);
  const RunRequest& request = runner_->request((*job)->id);
  EXPECT_THAT(request.devices, ElementsAre(1, 2));
  EXPECT_THAT(request.allow_change, ElementsAre("optimizer"));
  EXPECT_EQ(request.uid, kBert.uid);
}

// Waiting would not help it.
TEST_F(SchedulerDevicesTest, AJobForAnotherKindOfDeviceIsStartedAndRefusedByItsRun) {
  CreateJobOptions options;
  options.file = TestFile();
  options.file.overrides = {
      "model.path=" + (directory_ / "model"),
      "data.train=[{path: " + (directory_ / "train.jsonl") + ", format: alpaca}]",
      "engine.device=cuda"};
  const auto job = manager_->Create(kAnna, options);
  ASSERT_TRUE(job.ok()) << job.status();
  Round();
  EXPECT_EQ(State((*job)->id), S::kPreparing);
}

TEST_F(SchedulerDevicesTest, AJobThatIsLostHasDied) {
  const std::string lost = Submit(), other = Submit();
  Round();
  for (const std::string& id : {lost, other}) runner_->Running(id, 1, 100);
  Round();
  scheduler_->BeginShutdown();
  runner_->End(lost, RunEnd::Kind::kLost, absl::InternalError("it hung"));
  Round();
  EXPECT_EQ(State(lost), S::kQueued);
  EXPECT_EQ(Get(lost)->deaths, 1);
  EXPECT_EQ(Get(lost)->reason_text,
            "it hung at step 0; goes on from the beginning (death 1 of 5 without getting further)");
  EXPECT_THAT(runner_->Asked(), ::testing::Contains("stop " + other));
}

TEST_F(SchedulerDevicesTest, AfterARestartEachGoesOnOnWhateverIsFree) {
  const std::string one = Submit(), two = Submit(kBert, 0, 2);
  Round();
  for (const std::string& id : {one, two}) runner_->Running(id, 1, 100);
  Round();
  devices_ = 2;
  Restart();
  EXPECT_TRUE(Get(two)->devices.empty());
  Round();
  EXPECT_EQ(State(one), S::kPreparing);
  EXPECT_EQ(State(two), S::kQueued);
  RunToEnd(one);
  EXPECT_EQ(runner_->request(two).devices, (std::vector<int>{0, 1}));
}

// A card is off the bus for one boot.
TEST_F(SchedulerDevicesTest, AJobThatNeedsMoreGpusThanThereAreWaitsForThem) {
  first_device_ = "cuda:0";
  Restart();
  const std::string running = Submit(kBert, 0, 3), queued = Submit(kAnna, 0, 3);
  Round();
  runner_->Running(running, 1, 100);
  Round();
  devices_ = 2;
  Restart();
  const std::string small = Submit();
  Round();
  for (const std::string& id : {running, queued}) {
    EXPECT_EQ(State(id), S::kQueued);
    EXPECT_EQ(Get(id)->queue.waiting, WaitingReason::kDevicesMissing);
    EXPECT_EQ(Get(id)->queue.text,
              "needs 3 devices (engine.device: auto), and the daemon found 2 (cuda:0 to cuda:1) "
              "when it was started; starts when a daemon is started that finds them");
  }
  EXPECT_EQ(State(small), S::kPreparing) << "it does not wait for those";
  RunToEnd(small);
  EXPECT_EQ(State(queued), S::kQueued);
  devices_ = 3;
  Restart();
  Round();
  EXPECT_EQ(State(running), S::kPreparing);
  EXPECT_EQ(Get(running)->attempts, 2);
  RunToEnd(running);
  EXPECT_EQ(State(queued), S::kPreparing);
}

TEST_F(SchedulerDevicesTest, AJobGetsADeviceOnWhichItFitsAndNoOther) {
  fits_on_ = {{1, 2}};
  const std::string one = Submit(), two = Submit(kBert), three = Submit(kAnna);
  Round();
  EXPECT_EQ(runner_->request(one).devices, std::vector<int>{1});
  EXPECT_EQ(runner_->request(two).devices, std::vector<int>{2});
  EXPECT_EQ(State(three), S::kQueued) << "0 is free, and too small";
  EXPECT_EQ(Get(three)->queue.text,
            "is next; waits for 1 of the 2 devices on which it fits (cpu:1, cpu:2)");
  RunToEnd(two);
  EXPECT_EQ(runner_->request(three).devices, std::vector<int>{2});
}

TEST_F(SchedulerDevicesTest, AJobThatFitsOnNoDeviceOfThisDaemonWaitsForAnother) {
  const std::string id = Submit(kAnna, 0, 2);
  fits_on_ = std::vector<int>();
  Round();
  EXPECT_EQ(State(id), S::kQueued);
  EXPECT_EQ(Get(id)->queue.waiting, WaitingReason::kDevicesMissing);
  EXPECT_EQ(Get(id)->queue.text,
            "needs 2 devices (engine.device: auto) on which it fits (device memory is too small), "
            "and the daemon found 3 (cpu:0 to cpu:2) when it was started; starts when a daemon is "
            "started that finds them");
  fits_on_ = {{0, 2}};
  Restart();
  Round();
  EXPECT_EQ(runner_->request(id).devices, (std::vector<int>{0, 2}));
}

TEST_F(SchedulerDevicesTest, WhenAStopHasBegunNothingIsStarted) {
  const std::string one = Submit();
  Round();
  runner_->Running(one, 1, 100);
  Round();
  runner_->Asked();
  const std::string other = Submit();
  scheduler_->BeginShutdown();
  Round();
  EXPECT_THAT(runner_->Asked(), ElementsAre("stop " + one));
  EXPECT_EQ(State(other), S::kQueued);
  EXPECT_THAT(Get(other)->queue.text, HasSubstr("the daemon is stopping"));
}

TEST_F(SchedulerDevicesTest, AUsersLimitKeepsDevicesForOthersUntilItIsLifted) {
  limits_.Set({.running_jobs = 1});
  const std::string one = Submit(), two = Submit(), berts = Submit(kBert);
  Round();
  EXPECT_EQ(State(one), S::kPreparing);
  EXPECT_EQ(State(two), S::kQueued);
  EXPECT_EQ(Get(two)->queue.waiting, WaitingReason::kUserLimit);
  EXPECT_EQ(State(berts), S::kPreparing);
  limits_.Set(UserLimits());
  Round();
  EXPECT_EQ(State(two), S::kPreparing);
}

}  // namespace
}  // namespace megatrain
