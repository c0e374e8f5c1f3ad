// `megatraind run` as several processes by mpirun: the bits of as many devices of one process,
// ranks that are told to stop, killed or stopped, other numbers of ranks, and ranks that do not go
// together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/comm/launch_environment.h"
#include "tests/e2e/run_directory.h"
#include "tests/e2e/shared_job_fixture.h"
#include "tests/support/child_process.h"
#include "tests/support/mpi_job.h"
#include "tests/support/read_file.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Ne;

// A job that goes on for longer after a rank is lost has hung. tests/bench/processes_bench.py
// measures how long it takes.
constexpr auto kEndsWithin = std::chrono::minutes(2);
// Of mpirun: a rank that is lost ends no other, so that they must find out by themselves.
const std::vector<std::string> kLeftToTheRanks = {"--enable-recovery", "--mca",
                                                  "orte_abort_on_non_zero_status", "0"};
void Append(const std::vector<std::string>& more, std::vector<std::string>& command) {
  command.insert(command.end(), more.begin(), more.end());
}

class MpiRunTest : public SharedJobTest {
 protected:
  // `more` arguments are of megatraind, and `of_mpirun` of mpirun.
  static std::unique_ptr<ChildProcess> Start(const RunDirectory& directory, int ranks,
                                             const std::vector<std::string>& more = {},
                                             const std::vector<std::string>& of_mpirun = {}) {
    std::vector<std::string> command = MpirunCommand(ranks);
    Append(of_mpirun, command);
    Append(directory.RunCommand({"--rank-timeout", "3"}), command);
    Append(more, command);
    return std::make_unique<ChildProcess>(command, directory.path() / "log");
  }
  static void RunToTheEnd(const RunDirectory& directory, int ranks) {
    const auto run = Start(directory, ranks);
    EXPECT_EQ(run->Wait(), 0) << run->Output();
    ExpectUndisturbed(directory);
  }
  // How often a text comes in another.
  static int Count(const std::string& text, const std::string& part) {
    int count = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
    return count;
  }
};

TEST_F(MpiRunTest, RanksHaveTheBitsOfAsManyDevices) {
  for (const std::string precision : {"fp32", "bf16"}) {
    for (const int ranks : {2, 3}) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", precision));
      const std::string training =
          absl::StrCat("global_batch: 5, micro_batch: 1, eval_every: 8, precision: ", precision);
      const std::string name = absl::StrCat(precision, ranks);
      const RunDirectory devices = New(name + "_devices", training), mpi = New(name, training);
      ChildProcess expected(devices.RunCommand({"--set", absl::StrCat("engine.devices=", ranks),
                                                "--set", "data.eval_fraction=0.1"}),
                            devices.path() / "log");
      const auto run = Start(mpi, ranks, {"--set", "data.eval_fraction=0.1"});
      EXPECT_EQ(expected.Wait(), 0) << expected.Output();
      EXPECT_EQ(run->Wait(), 0) << run->Output();
      EXPECT_TRUE(mpi.FinalState() == devices.FinalState());
      mpi.ExpectMetrics(kSteps);
      // Rank 0 alone speaks.
      EXPECT_EQ(Count(run->Output(), "wrote "), 1) << run->Output();
    }
  }
}

struct FamilyCase {
  std::string family, precision, clipping;
  int ranks = 2;
  std::string freeze = "[]";
};

// Tied and untied, with experts, with and without clipping, with frozen weights.
TEST_F(MpiRunTest, RanksOfEachKindOfModelHaveTheBitsOfAsManyDevices) {
  for (const FamilyCase& c : {FamilyCase{"llama", "fp32", "0", 2},
                              {"llama", "bf16", "1", 4},
                              {"llama_tied", "bf16", "0", 3},
                              {"llama_tied", "fp32", "1", 2, "['model.layers.0.*', '*mlp*']"},
                              {"mixtral", "bf16", "0", 4, "['*experts*']"},
                              {"mixtral", "fp32", "1", 3}}) {
    SCOPED_TRACE(absl::StrCat(c.family, ", ", c.precision, ", ", c.ranks, " ranks"));
    const fs::path model = fs::absolute("tests/golden/models/" + c.family);
    const std::string training =
        absl::StrCat("global_batch: 4, micro_batch: 1, precision: ", c.precision);
    const std::vector<std::string> more = {
        "--set",
        absl::StrCat("data.train=[{path: ", (model / "tokens.bin").string(),
                     ", format: tokens, dtype: uint16}]"),
        "--set",
        "data.sequence_length=37",
        "--set",
        absl::StrCat("optimizer.max_gradient_norm=", c.clipping),
        "--set",
        absl::StrCat("training.freeze=", c.freeze)};
    const std::string name = absl::StrCat(c.family, c.precision);
    const RunDirectory devices(fs::path(own_->path()) / (name + "_devices"), model, 20, training);
    const RunDirectory mpi(fs::path(own_->path()) / name, model, 20, training);
    std::vector<std::string> of_devices = {"--set", absl::StrCat("engine.devices=", c.ranks)};
    Append(more, of_devices);
    ChildProcess expected(devices.RunCommand(of_devices), devices.path() / "log");
    const auto run = Start(mpi, c.ranks, more);
    EXPECT_EQ(expected.Wait(), 0) << expected.Output();
    EXPECT_EQ(run->Wait(), 0) << run->Output();
    EXPECT_THAT(mpi.FinalState(), Ne(""));
    EXPECT_TRUE(mpi.FinalState() == devices.FinalState());
    mpi.ExpectMetrics(20);
  }
}

// A signal to any rank; then other numbers of ranks go on.
TEST_F(MpiRunTest, OneRankThatIsToldToStopStopsAll) {
  const RunDirectory directory = New("stopped", kShards);
  for (const auto& [ranks, rank] : {std::pair(2, 1), std::pair(4, 2)}) {
    const auto run = Start(directory, ranks);
    const std::vector<int> before = directory.MetricSteps();
    directory.WaitForStep(*run, before.empty() ? 3 : before.back() + 3);
    kill(RanksOf(*run, "megatraind").at(rank), SIGTERM);
    EXPECT_EQ(run->Wait(), kInterrupted) << run->Output();
    ASSERT_FALSE(directory.Checkpoints().empty()) << run->Output();
    directory.ExpectMetrics(RunDirectory::StepOf(directory.Checkpoints().back()));
  }
  RunToTheEnd(directory, 2);
}

TEST_F(MpiRunTest, OneRankThatIsAskedForACheckpointMakesAllSave) {
  const RunDirectory directory = New("asked", kShards);
  const auto run = Start(directory, 2, {"--set", "checkpoint.every_steps=0"});
  directory.WaitForStep(*run, 2);
  kill(RanksOf(*run, "megatraind").at(1), SIGUSR1);
  EXPECT_EQ(run->Wait(), 0) << run->Output();
  EXPECT_EQ(directory.Checkpoints().size(), 2u) << run->Output();
  EXPECT_TRUE(directory.FinalState() == *undisturbed_);
}

TEST_F(MpiRunTest, KilledRanksAtRandomMoments) {
  const RunDirectory directory = New("killed", kShards);
  std::mt19937 random(std::random_device{}());
  for (int i = 0; i < 4; ++i) {
    const int ranks = i % 2 == 0 ? 2 : 4, rank = static_cast<int>(random()) & (ranks - 1);
    const auto run = Start(directory, ranks, {"--set", "checkpoint.every_steps=3"});
    directory.WaitForStep(*run, 2 + 4 * i);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 50000));
    const auto processes = RanksOf(*run, "megatraind");
    const auto found = processes.find(rank);
    const bool killed = found != processes.end() && kill(found->second, SIGKILL) == 0;
    const auto begin = std::chrono::steady_clock::now();
    const int code = run->Wait();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kEndsWithin) << run->Output();
    EXPECT_THAT(code, Ne(kUsage)) << run->Output();
    if (!killed || code == 0) continue;  // it had ended
    // mpirun says it, or a rank before mpirun has ended that.
    EXPECT_THAT(run->Output(), HasSubstr(absl::StrCat("rank ", rank))) << run->Output();
  }
  RunToTheEnd(directory, 4);
}

// A rank that is gone is found out by the others, of whom one says which it is: the lowest.
TEST_F(MpiRunTest, ALostRankIsToldOnceByThoseThatAreLeft) {
  for (const int rank : {0, 2}) {
    const RunDirectory directory = New(absl::StrCat("lost", rank), kShards);
    const auto run = Start(directory, 4, {}, kLeftToTheRanks);
    directory.WaitForStep(*run, 4);
    kill(RanksOf(*run, "megatraind").at(rank), SIGKILL);
    const auto begin = std::chrono::steady_clock::now();
    run->Wait();  // mpirun's code is 0 where it leaves the end to the ranks
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kEndsWithin) << run->Output();
    EXPECT_EQ(Count(run->Output(), "megatraind: "), 1) << run->Output();
    EXPECT_THAT(run->Output(), HasSubstr(absl::StrCat(" rank ", rank))) << run->Output();
    RunToTheEnd(directory, 4);
  }
}

// A rank that is stopped is found out by the others, who say which one it is. mpirun wakes it to
// end it, and then it has heard that this was said.
TEST_F(MpiRunTest, AStoppedRankEndsTheRun) {
  for (const auto& [ranks, rank] : {std::pair(4, 0), std::pair(2, 0), std::pair(2, 1)}) {
    const RunDirectory directory = New(absl::StrCat("hanging", ranks, rank), kShards);
    const auto run = Start(directory, ranks);
    directory.WaitForStep(*run, 4);
    kill(RanksOf(*run, "megatraind").at(rank), SIGSTOP);
    EXPECT_THAT(run->Wait(), kFailed) << run->Output();
    EXPECT_EQ(Count(run->Output(), "megatraind: "), 1) << run->Output();
    EXPECT_THAT(run->Output(), HasSubstr(absl::StrCat(" rank ", rank)));
    RunToTheEnd(directory, ranks);
  }
}

// Before the first step, by what the second rank has: its settings, its weights under a path that
// another machine has too, its directory of checkpoints.
TEST_F(MpiRunTest, RanksThatDoNotGoTogetherAreRefusedOnce) {
  const RunDirectory first = New("first", kShards), second = New("second", kShards);
  const fs::path other_model = fs::path(own_->path()) / "other_model";
  fs::copy(Model(), other_model);
  std::string weights = ReadFileOrEmpty(other_model / "model.safetensors");
  weights.back() ^= 1;
  WriteText(other_model / "model.safetensors", weights);
  const std::string shared = absl::StrCat("checkpoint.directory=", (first.path() / "c").string());
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"--set", "optimizer.learning_rate=2.0e-3"}, "rank 1 has optimizer.learning_rate"},
      {{"--set", "training.steps=9"}, "rank 1 has training.steps"},
      {{"--set", shared, "--set", absl::StrCat("model.path=", other_model.string())},
       "rank 1 has tensor "},
      {{}, "is not shared: what rank 0 on "}};
  for (const auto& [more, told] : cases) {
    std::vector<std::string> command = MpirunCommand(1);
    Append(first.RunCommand({"--set", shared}), command);
    Append({":", "-n", "1"}, command);
    Append(second.RunCommand(more), command);
    ChildProcess run(command, first.path() / "log");
    EXPECT_EQ(run.Wait(), kUsage) << run.Output();
    EXPECT_EQ(Count(run.Output(), told), 1) << run.Output();
    EXPECT_THAT(first.MetricSteps(), ::testing::IsEmpty());
  }
}

// The same file but for a byte behind its end.
TEST_F(MpiRunTest, RanksOfDifferentProgramsAreRefusedOnce) {
  const RunDirectory directory = New("programs", kShards);
  const fs::path other = directory.path() / "megatraind";
  fs::copy_file(MegatraindBinary(), other);
  fs::permissions(other, fs::perms::owner_write, fs::perm_options::add);
  std::ofstream(other, std::ios::app) << '\n';
  std::vector<std::string> command = MpirunCommand(1), second = directory.RunCommand();
  Append(directory.RunCommand(), command);
  Append({":", "-n", "1"}, command);
  second[0] = other;
  Append(second, command);
  ChildProcess run(command, directory.path() / "log");
  EXPECT_EQ(run.Wait(), kUsage) << run.Output();
  EXPECT_EQ(Count(run.Output(), "megatraind: "), 1) << run.Output();
  EXPECT_THAT(run.Output(), HasSubstr("rank 1 runs megatraind "));
  EXPECT_THAT(run.Output(), HasSubstr("install the same one on all machines"));
  EXPECT_THAT(directory.Checkpoints(), ::testing::IsEmpty());
}

// What is wrong on a machine is said once for it, with its name.
TEST_F(MpiRunTest, AMachineThatCannotBeginIsSaidOnce) {
  const RunDirectory directory = New("cannot", kShards);
  for (const auto& [variable, said] :
       {std::pair("MEGATRAIN_MPI=/nowhere/libmegatrain-mpi.so",
                  ": a job on several processes needs MPI"),
        std::pair("RANK=7", ": environment: RANK=7 contradicts OMPI_COMM_WORLD_RANK=0")}) {
    const auto run = Start(directory, 3, {}, {"-x", variable});
    EXPECT_EQ(run->Wait(), kUsage) << run->Output();
    EXPECT_EQ(Count(run->Output(), "megatraind: "), 1) << run->Output();
    EXPECT_THAT(run->Output(), HasSubstr(absl::StrCat("megatraind: on ", HostName(), said)));
  }
}

TEST_F(MpiRunTest, ABadJobFileIsSaidOnce) {
  const RunDirectory directory = New("bad", "global_batch: 4, micro_batch: none");
  const auto run = Start(directory, 3);
  EXPECT_EQ(run->Wait(), kUsage) << run->Output();
  EXPECT_EQ(Count(run->Output(), "training.micro_batch"), 1) << run->Output();
}

TEST_F(MpiRunTest, MoreRanksThanMicroBatchesAreRefusedOnce) {
  const auto run = Start(New("many", "global_batch: 4, micro_batch: 2"), 3);
  EXPECT_EQ(run->Wait(), kUsage) << run->Output();
  EXPECT_EQ(Count(run->Output(), "job of 3 processes: 3 devices cannot share a step of 2"), 1)
      << run->Output();
}

// Torchrun's ranks on one machine are as many devices, whether the job names that number or all.
TEST_F(MpiRunTest, RanksOfTorchrunOnOneMachineAreAllDevices) {
  std::string states[2];
  for (const std::string devices : {"all", "2"}) {
    const RunDirectory directory = New("torchrun_" + devices, "global_batch: 4, micro_batch: 1");
    std::vector<std::string> command = {"/usr/bin/env",       "RANK=0",
                                        "WORLD_SIZE=2",       "LOCAL_RANK=0",
                                        "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                                        "MASTER_PORT=29500"};
    Append(directory.RunCommand({"--set", "engine.devices=" + devices}), command);
    ChildProcess run(command, directory.path() / "log");
    EXPECT_EQ(run.Wait(), 0) << run.Output();
    states[devices == "all"] = directory.FinalState();
  }
  EXPECT_THAT(states[0], Ne(""));
  EXPECT_TRUE(states[0] == states[1]);
}

}  // namespace
}  // namespace megatrain
