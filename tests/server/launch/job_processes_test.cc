// What processes of a job take of their machine, and what becomes of a job whose processes do not
// come, hang, or do not leave. What the ranks do is in hanging_ranks.cc.
#include "server/launch/job_processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/base/processors.h"
#include "engine/comm/thread_communicator.h"
#include "engine/host/engine_host.h"
#include "server/worker/watchdog.h"
#include "tests/engine/device/cuda/emulated_gpu.h"
#include "tests/support/child_process.h"
#include "tests/support/mpi_job.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kRanks[] = "tests/server/launch/hanging_ranks";

// Where a process is.
struct Place {
  std::string machine, processors;
};

// Processes are threads here.
std::vector<EngineHostOptions> Divide(const std::vector<Place>& places) {
  const int ranks = static_cast<int>(places.size());
  std::vector<CommunicatorSet> communicators =
      CreateThreadCommunicators(ranks, absl::InfiniteDuration());
  std::vector<EngineHostOptions> options(places.size());
  std::vector<std::thread> processes;
  for (size_t i = 0; i < places.size(); ++i) {
    processes.emplace_back([&, i] {
      const absl::Status status = DivideMachine(*communicators[i].control, places[i].machine,
                                                places[i].processors, options[i]);
      EXPECT_TRUE(status.ok()) << status;
    });
  }
  for (std::thread& process : processes) process.join();
  return options;
}

// As a launcher deals them out in turns, so that a rank's number is not its number on its machine.
// Two machines with one identity would share out their GPUs as one. The kernel's file has no
// length.
TEST(JobProcessesTest, AMachinesIdentityIsThatOfItsBoot) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  file >> boot;
  ASSERT_EQ(boot.size(), 36u);
  EXPECT_EQ(MachineId(), boot);
}

TEST(JobProcessesTest, ProcessesTakeTheGpusOfTheirMachineInTheOrderOfRanks) {
  const std::vector<EngineHostOptions> options =
      Divide({{"a", "0,1,"}, {"b", "0,1,"}, {"a", "0,1,"}, {"b", "0,1,"}, {"a", "0,1,"}});
  const int sharers[] = {3, 2, 3, 2, 3}, gpus[] = {0, 0, 1, 1, 2};
  for (size_t rank = 0; rank < options.size(); ++rank) {
    SCOPED_TRACE(rank);
    EXPECT_EQ(options[rank].sharers, sharers[rank]);
    EXPECT_EQ(options[rank].process, gpus[rank]);
    // From the GPU on that the job names.
    for (const int first : {0, 1}) {
      EmulatedGpu gpu({.devices = 4});
      EngineHostOptions host = options[rank];
      host.device = HostDevices::CudaId(first);
      host.open_gpu = gpu.opener();
      const auto opened = EngineHost::Create(host);
      ASSERT_TRUE(opened.ok()) << opened.status();
      EXPECT_EQ((*opened)->devices().first, HostDevices::CudaId(first + gpus[rank]));
      EXPECT_EQ((*opened)->devices().count, 1);
    }
  }
}

TEST(JobProcessesTest, ProcessorsAreDividedWhereProcessesMayUseTheSame) {
  const int all = AvailableProcessors();
  std::vector<EngineHostOptions> options = Divide({{"a", "0,1,"}, {"a", "0,1,"}, {"b", "0,1,"}});
  EXPECT_EQ(options[0].threads, std::max(1, all / 2));
  EXPECT_EQ(options[1].threads, std::max(1, all / 2));
  EXPECT_EQ(options[2].threads, all) << "another machine's have the same numbers";
  EXPECT_EQ(options[0].first_processor, 0);
  EXPECT_EQ(options[1].first_processor, options[0].threads) << "the first one's keep to others";
  EXPECT_EQ(options[2].first_processor, 0);
  options = Divide({{"a", "0,"}, {"a", "1,"}});
  EXPECT_EQ(options[0].threads, all) << "a launcher has bound them apart";
  EXPECT_EQ(options[1].process, 1);
  EXPECT_EQ(options[1].first_processor, 0);
}

int Count(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
  return count;
}

class JobOfProcessesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why_not = WhyNoMpi(); why_not.has_value()) GTEST_SKIP() << *why_not;
  }
  // Runs a job of four ranks to its end. Returns what it said.
  std::string RunJob(const std::string& scenario, int odd_rank) {
    std::vector<std::string> command = MpirunCommand(4);
    for (const std::string& more : std::vector<std::string>{
             kRanks, scenario, absl::StrCat(odd_rank), std::string(directory_.path())}) {
      command.push_back(more);
    }
    ChildProcess job(command, directory_ / "log");
    exit_code_ = job.Wait();
    return job.Output();
  }

  const TestDirectory directory_;
  int exit_code_ = 0;
};

TEST_F(JobOfProcessesTest, ARankThatHangsEndsTheJobAndIsToldOnce) {
  for (const int rank : {0, 2}) {
    const std::string said = RunJob("stuck", rank);
    EXPECT_EQ(exit_code_, 1) << said;
    EXPECT_EQ(Count(said, "megatraind: "), 1) << said;
    EXPECT_THAT(said, HasSubstr(absl::StrCat("megatraind: rank ", rank, " on "))) << said;
    EXPECT_THAT(said, HasSubstr("saving step 7 has not advanced for "));
    EXPECT_THAT(said, HasSubstr("after step 7"));
  }
}

TEST_F(JobOfProcessesTest, ARankThatIsSlowIsWaitedFor) {
  const std::string said = RunJob("slow", 1);
  EXPECT_EQ(exit_code_, 0) << said;
  EXPECT_THAT(said, Not(HasSubstr("megatraind: "))) << said;
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(std::filesystem::exists(directory_ / absl::StrCat("came", rank)));
  }
}

TEST_F(JobOfProcessesTest, ARankThatHasDoneItsPartDoesNotWaitForEver) {
  const std::string said = RunJob("stays", 3);
  EXPECT_EQ(Count(said, "the other processes have not left within 9s"), 1) << said;
}

// Ranks whose program is another one, which never reaches MPI.
TEST_F(JobOfProcessesTest, ARankThatDoesNotComeIsToldOnceByItsNumber) {
  for (const int missing : {0, 2}) {
    std::vector<std::string> command = MpirunCommand(missing);
    const auto add = [&command](const std::vector<std::string>& more) {
      command.insert(command.end(), more.begin(), more.end());
    };
    const std::vector<std::string> rank = {kRanks, "slow", "9", directory_.path()};
    if (missing == 0) {
      command = MpirunCommand(1);
      add({"/bin/sleep", "1000", ":", "-n", "3"});
      add(rank);
    } else {
      add(rank);
      add({":", "-n", "1", "/bin/sleep", "1000", ":", "-n", "1"});
      add(rank);
    }
    ChildProcess job(command, directory_ / "log");
    EXPECT_EQ(job.Wait(), 1) << job.Output();
    EXPECT_EQ(Count(job.Output(), "megatraind: "), 1) << job.Output();
    EXPECT_THAT(job.Output(),
                HasSubstr(absl::StrCat(": rank ", missing, " is not there 3s after the start")));
    EXPECT_THAT(job.Output(), HasSubstr("megatraind: on " + HostName() + ": "));
  }
}

TEST(JobProcessesTest, AProcessAloneThatHangsSaysSoAndEnds) {
  EXPECT_EXIT(
      {
        JobProcesses processes = JobProcesses::Read();
        double now = 0;
        WatchdogOptions options;
        options.poll_seconds = 1e6;
        options.stopped_seconds = 1e12;
        options.now = [&now] { return now; };
        options.share = processes.Share();
        Watchdog watchdog(options, [&](const std::string& why) { processes.EndHanging(why); });
        watchdog.Enter(TrainingPhase::kRunning);
        watchdog.StepDone(12, 3);
        now = 121;
        watchdog.Check();
      },
      ::testing::ExitedWithCode(1),
      "^megatraind: training has not advanced for 121 s .at most 120 s are expected. after step "
      "12");
}

}  // namespace
}  // namespace megatrain
