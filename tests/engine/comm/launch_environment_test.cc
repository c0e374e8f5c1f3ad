#include "engine/comm/launch_environment.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace megatrain {
namespace {

using Variables = std::map<std::string, std::string>;

absl::StatusOr<LaunchEnvironment> Read(const Variables& variables) {
  return ReadLaunchEnvironment(
      [&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
      },
      "here");
}

const Variables kMpirun = {{"OMPI_COMM_WORLD_RANK", "5"},
                           {"OMPI_COMM_WORLD_SIZE", "8"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                           {"PMIX_RANK", "5"}};
const Variables kSrun = {{"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", "6"},
                         {"SLURM_NTASKS", "7"},
                         {"SLURM_LOCALID", "0"},
                         {"SLURM_NODEID", "3"},
                         {"SLURMD_NODENAME", "n4"},
                         {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                         {"SLURM_TASKS_PER_NODE", "9"},
                         {"PMIX_RANK", "6"}};
const Variables kTorchrun = {{"RANK", "3"},
                             {"WORLD_SIZE", "4"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "n0.cluster"},
                             {"MASTER_PORT", "29500"}};

Variables With(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}
Variables Without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

TEST(LaunchEnvironmentTest, WithoutALauncherThereIsOneRank) {
  const absl::StatusOr<LaunchEnvironment> read = Read({{"PATH", "/bin"}});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->launcher, Launcher::kNone);
  EXPECT_EQ(read->rank, 0);
  EXPECT_EQ(read->ranks, 1);
  EXPECT_EQ(read->local_rank, 0);
  EXPECT_EQ(read->local_ranks, 1);
  EXPECT_EQ(read->node, "here");
}

TEST(LaunchEnvironmentTest, Mpirun) {
  const absl::StatusOr<LaunchEnvironment> read = Read(kMpirun);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->launcher, Launcher::kOpenMpi);
  EXPECT_EQ(read->rank, 5);
  EXPECT_EQ(read->ranks, 8);
  EXPECT_EQ(read->local_rank, 1);
  EXPECT_EQ(read->local_ranks, 4);
  EXPECT_EQ(read->node, "here");
}

TEST(LaunchEnvironmentTest, Srun) {
  const absl::StatusOr<LaunchEnvironment> read = Read(kSrun);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->launcher, Launcher::kSlurm);
  EXPECT_EQ(read->rank, 6);
  EXPECT_EQ(read->ranks, 7);
  EXPECT_EQ(read->local_rank, 0);
  EXPECT_EQ(read->local_ranks, 1);
  EXPECT_EQ(read->node, "n4");
  // The second of its kind of node, and one behind two other kinds.
  const auto second = Read(With(With(kSrun, "SLURM_NODEID", "1"), "SLURM_LOCALID", "1"));
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->local_ranks, 2);
  const auto last = Read(With(With(With(kSrun, "SLURM_NTASKS", "15"), "SLURM_NODEID", "5"),
                              "SLURM_STEP_TASKS_PER_NODE", "2(x3),1,4(x2)"));
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(last->local_ranks, 4);
  const auto alone = Read(With(With(kSrun, "SLURM_NODEID", "0"), "SLURM_STEP_TASKS_PER_NODE", "7"));
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(alone->local_ranks, 7);
}

TEST(LaunchEnvironmentTest, Torchrun) {
  const absl::StatusOr<LaunchEnvironment> read = Read(kTorchrun);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->launcher, Launcher::kTorchrun);
  EXPECT_EQ(read->rank, 3);
  EXPECT_EQ(read->ranks, 4);
  EXPECT_EQ(read->local_rank, 1);
  EXPECT_EQ(read->local_ranks, 2);
  EXPECT_EQ(read->master_address, "n0.cluster");
  EXPECT_EQ(read->master_port, 29500);
  for (const int port : {1, 65535}) {
    EXPECT_EQ(Read(With(kTorchrun, "MASTER_PORT", std::to_string(port)))->master_port, port);
  }
}

TEST(LaunchEnvironmentTest, TheFirstAndTheLastRankAreRead) {
  for (const int rank : {0, 7}) {  // of eight on one machine
    Variables variables = With(kMpirun, "OMPI_COMM_WORLD_LOCAL_SIZE", "8");
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "PMIX_RANK"}) {
      variables[name] = std::to_string(rank);
    }
    const absl::StatusOr<LaunchEnvironment> read = Read(variables);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->rank, rank);
    EXPECT_EQ(read->local_rank, rank);
    EXPECT_EQ(read->local_ranks, 8);
  }
  const absl::StatusOr<LaunchEnvironment> alone = Read({{"OMPI_COMM_WORLD_RANK", "0"},
                                                        {"OMPI_COMM_WORLD_SIZE", "1"},
                                                        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(alone->ranks, 1);
  const absl::StatusOr<LaunchEnvironment> first =
      Read(With(With(With(kSrun, "SLURM_PROCID", "0"), "PMIX_RANK", "0"), "SLURM_NODEID", "0"));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->rank, 0);
  EXPECT_EQ(first->local_ranks, 2);
}

TEST(LaunchEnvironmentTest, MpirunWithinAnAllocationOfSlurm) {
  Variables both = kMpirun;
  both.insert({"SLURM_PROCID", "0"});
  both.insert({"SLURM_NTASKS", "2"});
  const absl::StatusOr<LaunchEnvironment> read = Read(both);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->launcher, Launcher::kOpenMpi);
  EXPECT_EQ(read->rank, 5);
}

TEST(LaunchEnvironmentTest, ABatchScriptIsOneRank) {
  const absl::StatusOr<LaunchEnvironment> read = Read({{"SLURM_JOB_ID", "12"},
                                                       {"SLURM_NTASKS", "4"},
                                                       {"SLURM_PROCID", "0"},
                                                       {"SLURM_LOCALID", "0"}});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ranks, 1);
}

TEST(LaunchEnvironmentTest, WhatIsWrongIsNamed) {
  const struct {
    Variables variables;
    const char* named;
  } kCases[] = {
      {With(kMpirun, "OMPI_COMM_WORLD_RANK", "8"), "OMPI_COMM_WORLD_RANK=8"},
      {With(kMpirun, "OMPI_COMM_WORLD_RANK", "-1"), "OMPI_COMM_WORLD_RANK=-1"},
      {With(kMpirun, "OMPI_COMM_WORLD_RANK", "one"), "OMPI_COMM_WORLD_RANK=one"},
      {With(kMpirun, "OMPI_COMM_WORLD_SIZE", "0"), "OMPI_COMM_WORLD_SIZE=0"},
      {With(kMpirun, "OMPI_COMM_WORLD_SIZE", "99999999999"), "OMPI_COMM_WORLD_SIZE="},
      {With(kMpirun, "OMPI_COMM_WORLD_LOCAL_RANK", "4"), "OMPI_COMM_WORLD_LOCAL_RANK=4"},
      {With(kMpirun, "OMPI_COMM_WORLD_LOCAL_SIZE", "9"), "OMPI_COMM_WORLD_LOCAL_SIZE=9"},
      {With(kMpirun, "PMIX_RANK", "4"), "PMIX_RANK=4 contradicts OMPI_COMM_WORLD_RANK=5"},
      {With(kMpirun, "RANK", "4"), "RANK=4 contradicts OMPI_COMM_WORLD_RANK=5"},
      {Without(kMpirun, "OMPI_COMM_WORLD_SIZE"), "OMPI_COMM_WORLD_SIZE is not set"},
      {Without(kMpirun, "OMPI_COMM_WORLD_RANK"), "OMPI_COMM_WORLD_RANK is not set"},
      {With(kSrun, "SLURM_PROCID", ""), "SLURM_PROCID="},
      {With(kSrun, "SLURM_LOCALID", "1"), "SLURM_LOCALID=1"},
      {With(kSrun, "PMIX_RANK", "0"), "PMIX_RANK=0 contradicts SLURM_PROCID=6"},
      {With(kSrun, "SLURM_NODEID", "4"), "SLURM_STEP_TASKS_PER_NODE=2(x3),1"},
      {With(kSrun, "SLURM_STEP_TASKS_PER_NODE", "2(x3,1"), "SLURM_STEP_TASKS_PER_NODE=2(x3,1"},
      {With(kSrun, "SLURM_STEP_TASKS_PER_NODE", "8(x4)"), "SLURM_STEP_TASKS_PER_NODE=8(x4)"},
      {With(kSrun, "SLURM_STEP_TASKS_PER_NODE", "2(x0),1"), "SLURM_STEP_TASKS_PER_NODE=2(x0),1"},
      {Without(kSrun, "SLURM_NTASKS"), "SLURM_NTASKS is not set"},
      {Without(kSrun, "SLURM_PROCID"), "SLURM_PROCID is not set"},
      {Without(Without(kSrun, "SLURM_STEP_TASKS_PER_NODE"), "SLURM_TASKS_PER_NODE"),
       "SLURM_TASKS_PER_NODE="},
      {Without(kTorchrun, "WORLD_SIZE"), "WORLD_SIZE is not set"},
      {Without(kTorchrun, "MASTER_ADDR"), "MASTER_ADDR is not set"},
      {With(kTorchrun, "MASTER_PORT", "0"), "MASTER_PORT=0"},
      {With(kTorchrun, "MASTER_PORT", "65536"), "MASTER_PORT=65536"},
      {With({}, "WORLD_SIZE", "2"), "RANK is not set"},
      {With({}, "LOCAL_RANK", "0"), "WORLD_SIZE is not set"},
      {With({}, "OMPI_COMM_WORLD_LOCAL_RANK", "0"), "OMPI_COMM_WORLD_SIZE is not set"},
      {With(kTorchrun, "RANK", "4"), "RANK=4"},
  };
  for (const auto& c : kCases) {
    const absl::Status status = Read(c.variables).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << c.named;
    EXPECT_NE(status.message().find(c.named), std::string::npos) << c.named << ": " << status;
  }
}

TEST(ApparentEnvironmentTest, TellsTheRankWhateverElseIsWrong) {
  const auto rank = [](std::map<std::string, std::string> variables) {
    const LaunchEnvironment apparent = ApparentEnvironment(
        [&](const char* name) -> const char* {
          const auto found = variables.find(name);
          return found == variables.end() ? nullptr : found->second.c_str();
        },
        "n1");
    EXPECT_EQ(apparent.node, "n1");
    EXPECT_EQ(apparent.ranks, 1);
    return std::pair(apparent.rank, apparent.local_rank);
  };
  EXPECT_EQ(rank({}), std::pair(0, 0));
  EXPECT_EQ(rank({{"OMPI_COMM_WORLD_RANK", "5"}}), std::pair(5, 0));
  EXPECT_EQ(rank({{"RANK", "5"}, {"LOCAL_RANK", "1"}}), std::pair(5, 1));
  EXPECT_EQ(rank({{"SLURM_PROCID", "3"}, {"SLURM_LOCALID", "2"}}), std::pair(3, 2));
  EXPECT_EQ(rank({{"OMPI_COMM_WORLD_RANK", "x"}}), std::pair(0, 0));
}

}  // namespace
}  // namespace megatrain
