// `megatraind run` as torchrun starts it on several machines. Two launchers of one machine stand
// for two: they have a network in common, and MPI's own between them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/e2e/run_directory.h"
#include "tests/e2e/shared_job_fixture.h"
#include "tests/support/child_process.h"
#include "tests/support/mpi_job.h"
#include "tests/support/read_file.h"
#include "tests/support/wait_until.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// The first processes of each machine of a job of two ranks a machine.
class Machines {
 public:
  // `count` of two machines are there.
  Machines(const RunDirectory& directory, int count, const std::string& rank_timeout = "3")
      : directory_(directory) {
    const std::string run =
        absl::StrJoin(directory.RunCommand({"--rank-timeout", rank_timeout}), "' '");
    std::string script;
    for (int machine = 0; machine < count; ++machine) {
      fs::remove(CodeOf(machine));
      // On one machine, files in /dev/shm would have the same names for both.
      const std::string shared = directory.path() / absl::StrCat("shared", machine);
      fs::create_directories(shared);
      absl::StrAppend(&script, "(OMPI_MCA_btl_vader_backing_directory='", shared,
                      "' OMPI_MCA_btl_tcp_if_include=lo RANK=", 2 * machine,
                      " WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
                      "MASTER_PORT=29500 '",
                      run, "' > '", LogOf(machine), "' 2>&1; echo $? > '", CodeOf(machine),
                      "') & ");
    }
    script += "wait";
    std::vector<std::string> command = PrivateNetworkCommand();
    command.insert(command.end(), {"/bin/sh", "-c", script});
    job_ = std::make_unique<ChildProcess>(command, directory.path() / "log");
  }

  ChildProcess& job() { return *job_; }
  // Waits for the end of all.
  void Wait() { EXPECT_EQ(job_->Wait(), 0) << job_->Output(); }
  int Code(int machine) const { return std::atoi(ReadFileOrEmpty(CodeOf(machine)).c_str()); }
  std::string Output(int machine) const { return ReadFileOrEmpty(LogOf(machine)); }
  // The process of a machine that torchrun has started, and one that it has started itself.
  pid_t Launcher(int machine) const { return Find(2 * machine, /*of_mpi=*/false); }
  pid_t Rank(int rank) const { return Find(rank, /*of_mpi=*/true); }

 private:
  std::string LogOf(int machine) const { return directory_.path() / absl::StrCat("log", machine); }
  std::string CodeOf(int machine) const {
    return directory_.path() / absl::StrCat("code", machine);
  }
  pid_t Find(int rank, bool of_mpi) const {
    for (const auto& process : fs::directory_iterator("/proc")) {
      const std::string arguments = ReadFileOrEmpty(process.path() / "cmdline");
      if (arguments.find(directory_.path().string() + "/") == std::string::npos) continue;
      bool same_rank = false, is_of_mpi = false;
      std::istringstream variables(ReadFileOrEmpty(process.path() / "environ"));
      for (std::string variable; std::getline(variables, variable, '\0');) {
        same_rank |= variable == absl::StrCat("RANK=", rank);
        is_of_mpi |= variable.starts_with("OMPI_COMM_WORLD_RANK=");
      }
      if (same_rank && is_of_mpi == of_mpi) return std::stoi(process.path().filename());
    }
    return -1;
  }

  const RunDirectory directory_;
  std::unique_ptr<ChildProcess> job_;
};

class TorchrunTest : public SharedJobTest {
 protected:
  static void RunToTheEnd(const RunDirectory& directory) {
    Machines machines(directory, 2);
    machines.Wait();
    for (const int machine : {0, 1})
      EXPECT_EQ(machines.Code(machine), 0) << machines.Output(machine);
    ExpectUndisturbed(directory);
    // One terminal shows the run.
    EXPECT_THAT(machines.Output(0), HasSubstr("step 24/24"));
    EXPECT_EQ(machines.Output(1), "");
  }
};

TEST_F(TorchrunTest, TheRanksOfTwoMachinesHaveTheBitsOfOne) { RunToTheEnd(New("whole")); }

TEST_F(TorchrunTest, ASignalToOneLauncherStopsAll) {
  const RunDirectory directory = New("stopped");
  {
    Machines machines(directory, 2);
    directory.WaitForStep(machines.job(), 3);
    kill(machines.Launcher(1), SIGTERM);
    machines.Wait();
    for (const int machine : {0, 1}) {
      EXPECT_EQ(machines.Code(machine), kInterrupted) << machines.Output(machine);
    }
    ASSERT_FALSE(directory.Checkpoints().empty()) << machines.Output(0);
  }
  RunToTheEnd(directory);
}

TEST_F(TorchrunTest, AKilledLauncherTakesItsProcessesAlongAndTheOthersSayIt) {
  const RunDirectory directory = New("killed");
  {
    Machines machines(directory, 2);
    directory.WaitForStep(machines.job(), 3);
    const pid_t rank = machines.Rank(3);
    ASSERT_GT(rank, 0);
    kill(machines.Launcher(1), SIGKILL);
    machines.Wait();
    EXPECT_EQ(machines.Code(0), kFailed) << machines.Output(0);
    EXPECT_THAT(machines.Output(0), HasSubstr(" for rank")) << machines.Output(0);
    EXPECT_EQ(machines.Rank(3), -1);
  }
  RunToTheEnd(directory);
}

TEST_F(TorchrunTest, AKilledRankEndsAll) {
  const RunDirectory directory = New("killed_rank");
  {
    Machines machines(directory, 2);
    directory.WaitForStep(machines.job(), 3);
    kill(machines.Rank(2), SIGKILL);
    machines.Wait();
    EXPECT_EQ(machines.Code(0), kFailed) << machines.Output(0);
    EXPECT_EQ(machines.Code(1), kFailed) << machines.Output(1);
    EXPECT_THAT(machines.Output(0), HasSubstr("rank 2")) << machines.Output(0);
  }
  RunToTheEnd(directory);
}

TEST_F(TorchrunTest, AMachineThatDoesNotComeIsNamed) {
  const RunDirectory directory = New("alone");
  Machines machines(directory, 1);
  machines.Wait();
  EXPECT_EQ(machines.Code(0), kFailed);
  EXPECT_THAT(machines.Output(0), HasSubstr("the launcher of ranks 2, 3 has not come to "
                                            "127.0.0.1:29500"));
  EXPECT_THAT(directory.Checkpoints(), ::testing::IsEmpty());
}

TEST_F(TorchrunTest, ASignalEndsTheWaitForTheOthers) {
  const RunDirectory directory = New("told");
  Machines machines(directory, 1, "3600");
  ASSERT_TRUE(WaitUntil([&] { return machines.Launcher(0) > 0; }));
  kill(machines.Launcher(0), SIGTERM);
  machines.Wait();
  EXPECT_THAT(machines.Code(0), ::testing::AnyOf(kInterrupted, 128 + SIGTERM));
}

TEST_F(TorchrunTest, ABadJobFileIsSaidOnce) {
  const RunDirectory directory = New("bad", "global_batch: 4, micro_batch: none");
  Machines machines(directory, 2);
  machines.Wait();
  for (const int machine : {0, 1}) {
    EXPECT_EQ(machines.Code(machine), kUsage) << machines.Output(machine);
  }
  EXPECT_THAT(machines.Output(0), HasSubstr("training.micro_batch"));
  EXPECT_EQ(machines.Output(1), "");
}

}  // namespace
}  // namespace megatrain
