// SIGHUP: the configuration is read again, and the daemon goes on whatever it says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/workplace.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class ServeReloadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto place = Workplace::Make(fs::absolute("server/megatraind").string(), "llama-tiny");
    ASSERT_TRUE(place.ok()) << place.status();
    place_ = *std::move(place);
    auto options = place_->NewDaemon("d");
    ASSERT_TRUE(options.ok()) << options.status();
    options_ = *std::move(options);
    options_.config = place_->directory() + "/daemon.yaml";
    Write("limits: {host_memory_per_user: 1KiB}\n");
    StartDaemon();
  }
  void StartDaemon() {
    auto daemon = DaemonProcess::Start(options_);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    daemon_ = *std::move(daemon);
  }

  void Write(const std::string& text) const { std::ofstream(options_.config) << text; }
  // Sends the signal and waits until the log has `text` once more.
  void Reload(const std::string& text) {
    const size_t before = Count(text);
    daemon_->process().Signal(SIGHUP);
    const absl::Status told = daemon_->WaitFor([&] { return Count(text) > before; });
    ASSERT_TRUE(told.ok()) << told;
  }
  size_t Count(const std::string& text) const {
    const std::string log = daemon_->process().Output();
    size_t count = 0;
    for (size_t at = log.find(text); at != std::string::npos; at = log.find(text, at + 1)) ++count;
    return count;
  }
  // What becomes of a job that would be submitted now.
  absl::Status Check() {
    v1::CreateJobRequest request = place_->Request({}, "");
    request.set_validate_only(true);
    return daemon_->Create(request).status();
  }

  // Runs a job of one step to its end, and gives the bytes of its checkpoint.
  void RunAJob(int64_t* checkpoint_bytes) {
    const auto job = daemon_->Create(place_->Request({.steps = 1, .threads = 1}, ""));
    ASSERT_TRUE(job.ok()) << job.status();
    ASSERT_TRUE(daemon_->WaitForState(job->name(), v1::Job::SUCCEEDED).ok());
    const auto ended = daemon_->Get(job->name());
    ASSERT_TRUE(ended.ok()) << ended.status();
    *checkpoint_bytes = 0;
    for (const auto& entry :
         fs::recursive_directory_iterator(ended->summary().checkpoint_directory())) {
      if (entry.is_regular_file()) *checkpoint_bytes += static_cast<int64_t>(entry.file_size());
    }
    ASSERT_GT(*checkpoint_bytes, 0);
  }

  std::unique_ptr<Workplace> place_;
  DaemonProcess::Options options_;
  std::unique_ptr<DaemonProcess> daemon_;
};

TEST_F(ServeReloadTest, TakesOverWhatCanBeChangedAndNamesTheRest) {
  EXPECT_THAT(std::string(Check().message()), HasSubstr("limits.host_memory_per_user"));

  Write("limits: {host_memory_per_user: 0}\nthread: 3\n");
  Reload("is not read again, what was before stays");
  EXPECT_THAT(daemon_->process().Output(), HasSubstr("thread: unknown key"));
  EXPECT_FALSE(Check().ok());

  Write(
      "limits: {host_memory_per_user: 0}\nadministrators: [nobody-of-this-name]\n"
      "log_level: error\n");
  Reload("administrators: nobody-of-this-name");
  EXPECT_FALSE(Check().ok()) << "all of it or nothing";

  Write("limits: {host_memory_per_user: 0}\nroots: [/srv]\n");
  Reload("need a restart: roots");  // a warning, which is logged still
  EXPECT_TRUE(Check().ok()) << Check();

  Write("log_level: warning\nlimits: {host_memory_per_user: 1KiB}\n");
  Reload("the configuration was read again");
  EXPECT_FALSE(Check().ok());

  daemon_->process().Signal(SIGTERM);
  EXPECT_EQ(daemon_->process().Wait(), 0) << daemon_->process().Output();
  EXPECT_THAT(daemon_->process().Output(), Not(HasSubstr("stopped"))) << "that is information";
}

// What jobs hold was not measured before there was a limit.
TEST_F(ServeReloadTest, ANewDiskLimitCountsWhatJobsHoldAlready) {
  Write("");
  Reload("the configuration was read again");
  int64_t checkpoint = 0;
  ASSERT_NO_FATAL_FAILURE(RunAJob(&checkpoint));
  // A job may have three checkpoints.
  Write(absl::StrCat("limits: {disk_per_user: ", checkpoint * 7 / 2, "}\n"));
  Reload("the configuration was read again");
  EXPECT_THAT(std::string(Check().message()), HasSubstr("your other jobs hold"));
  Write(absl::StrCat("limits: {disk_per_user: ", checkpoint * 9 / 2, "}\n"));
  Reload("the configuration was read again");
  EXPECT_TRUE(Check().ok()) << Check();
}

TEST_F(ServeReloadTest, ADiskLimitCountsWhatJobsLeaveAlsoInTheNextLife) {
  Write("limits: {disk_per_user: 1TiB}\n");
  Reload("the configuration was read again");
  int64_t checkpoint = 0;
  ASSERT_NO_FATAL_FAILURE(RunAJob(&checkpoint));
  // There was a limit before: this reload does not measure.
  Write(absl::StrCat("limits: {disk_per_user: ", checkpoint * 7 / 2, "}\n"));
  Reload("the configuration was read again");
  EXPECT_THAT(std::string(Check().message()), HasSubstr("your other jobs hold"));
  daemon_->process().Signal(SIGKILL);
  daemon_->process().Wait();
  ASSERT_NO_FATAL_FAILURE(StartDaemon());
  EXPECT_THAT(std::string(Check().message()), HasSubstr("your other jobs hold"));
}

TEST_F(ServeReloadTest, DoesNotDisturbAJob) {
  Write("");
  Reload("the configuration was read again");
  const auto job = daemon_->Create(place_->Request({.steps = 60, .threads = 1}, ""));
  ASSERT_TRUE(job.ok()) << job.status();
  for (int step = 10; step <= 50; step += 10) {
    ASSERT_TRUE(daemon_->WaitForStep(job->name(), step).ok());
    daemon_->process().Signal(SIGHUP);
  }
  const absl::Status done = daemon_->WaitForState(job->name(), v1::Job::SUCCEEDED);
  EXPECT_TRUE(done.ok()) << done;
  const auto ended = daemon_->Get(job->name());
  ASSERT_TRUE(ended.ok());
  EXPECT_EQ(ended->attempt_count(), 1);
}

TEST_F(ServeReloadTest, EndedJobsAreForgottenAtAReloadAndAtAStart) {
  Write("");
  Reload("the configuration was read again");
  for (int i = 0; i < 3; ++i) {
    const auto job = daemon_->Create(place_->Request({.threads = 1}, ""));
    ASSERT_TRUE(job.ok()) << job.status();
    ASSERT_TRUE(daemon_->Cancel(job->name()).ok());
    ASSERT_TRUE(daemon_->WaitForState(job->name(), v1::Job::CANCELLED).ok());
  }
  const auto kept = [this] { return daemon_->List().value_or(std::vector<v1::Job>()).size(); };
  EXPECT_EQ(kept(), 3u);
  Write("keep_ended_jobs_per_user: 2\n");
  Reload("the configuration was read again");
  EXPECT_TRUE(daemon_->WaitFor([&] { return kept() == 2; }).ok());
  Write("keep_ended_jobs_per_user: 1\n");
  daemon_->process().Signal(SIGKILL);
  daemon_->process().Wait();
  ASSERT_NO_FATAL_FAILURE(StartDaemon());
  EXPECT_TRUE(daemon_->WaitFor([&] { return kept() == 1; }).ok());
}

}  // namespace
}  // namespace megatrain
