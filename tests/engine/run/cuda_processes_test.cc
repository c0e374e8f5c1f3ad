// Jobs of several processes with an emulated GPU each, which exchange by a fake NCCL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/comm/thread_communicator.h"
#include "tests/engine/run/cuda_ranks_fixture.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

// Processes are threads with a host each here.
std::vector<JobRun> TrainInProcesses(int count, const JobSpec& spec, const GpuOpener& open_gpu,
                                     const std::function<void(FakeNcclLoader&)>& prepare = {},
                                     int group_ranks = 1) {
  std::vector<CommunicatorSet> communicators =
      CreateThreadCommunicators(count, absl::InfiniteDuration());
  for (CommunicatorSet& set : communicators) set.group_ranks = group_ranks;
  FakeNcclLoader nccl(count);
  // In the order of ranks.
  std::vector<std::unique_ptr<NcclApi>> apis;
  for (int i = 0; i < count; ++i) apis.push_back(*nccl.loader()());
  if (prepare) prepare(nccl);
  std::vector<std::unique_ptr<EngineHost>> hosts;
  for (int i = 0; i < count; ++i) {
    EngineHostOptions options;
    options.sharers = count;
    options.process = i;
    options.load_nccl = [&apis, i] { return std::move(apis[static_cast<size_t>(i)]); };
    options.threads = 2;
    options.open_gpu = open_gpu;
    hosts.push_back(*EngineHost::Create(options));
  }
  std::vector<JobRun> runs(hosts.size());
  std::vector<std::thread> processes;
  for (size_t i = 0; i < hosts.size(); ++i) {
    processes.emplace_back(
        [&, i] { runs[i] = TrainOnHost(*hosts[i], spec, /*stop_after=*/0, &communicators[i]); });
  }
  for (std::thread& process : processes) process.join();
  // In groups a rank sends nothing to those of another group and place.
  for (const auto& [from, to] : nccl.sends()) {
    EXPECT_TRUE(from / group_ranks == to / group_ranks || from % group_ranks == to % group_ranks)
        << "rank " << from << " sent to rank " << to;
  }
  return runs;
}

TEST(CudaProcessesTest, ProcessesWithAGpuEachHaveTheBitsOfOneProcess) {
  // Four are on two machines.
  for (const auto& [count, group_ranks] : {std::pair(2, 1), std::pair(4, 2)}) {
    SCOPED_TRACE(count);
    Machine machine(count);
    const JobSpec one = JobOf(count, absl::StrCat("one_process_", count));
    const JobRun expected = TrainOn(*machine.host, one);
    ASSERT_TRUE(expected.status.ok()) << expected.status;
    EmulatedGpu gpu({.devices = count});
    JobSpec spec = JobOf(1, absl::StrCat("processes_", count));
    spec.engine.device = "auto";
    const std::vector<JobRun> runs = TrainInProcesses(count, spec, gpu.opener(), {}, group_ranks);
    for (const JobRun& run : runs) EXPECT_TRUE(run.status.ok()) << run.status;
    ExpectSame(runs[0], expected);
    EXPECT_TRUE(CheckpointTensorFiles(spec) == CheckpointTensorFiles(one));
  }
}

TEST(CudaProcessesTest, TheRankWithTheLeastMemoryIsNamed) {
  const auto pinned = std::make_shared<EmulatedPinned>();
  EmulatedGpu large({.devices = 2, .pinned = pinned});
  EmulatedGpu small({.devices = 2, .memory_bytes = int64_t{3} << 30, .pinned = pinned});
  JobSpec spec = JobOf(1, "unequal_processes");
  spec.engine.device = "auto";
  spec.training.steps = 1;
  const std::vector<JobRun> runs = TrainInProcesses(
      2, spec, [&](int ordinal) { return (ordinal == 0 ? large : small).opener()(ordinal); });
  ASSERT_TRUE(runs[0].status.ok()) << runs[0].status;
  EXPECT_THAT(runs[0].messages,
              Contains(AllOf(HasSubstr("the processes have unequal device memory, "),
                             HasSubstr(" (rank 1) to "), HasSubstr(" (rank 0): the least"))));
}

TEST(CudaProcessesTest, AnErrorOfNcclEndsAllProcesses) {
  EmulatedGpu gpu({.devices = 2});
  JobSpec spec = JobOf(1, "two_processes_fail");
  spec.engine.device = "auto";
  for (const char* method : {"Initialize", "Operation"}) {
    const auto fail = [&](FakeNcclLoader& nccl) { nccl.of(1).Fail(method, 3); };
    for (const JobRun& run : TrainInProcesses(2, spec, gpu.opener(), fail)) {
      EXPECT_THAT(Message(run.status), AllOf(HasSubstr("rank 1"), HasSubstr("fake error 3")));
    }
  }
}

// Each process computes some things by itself, such as answers to prompts. They must be the same.
TEST(CudaProcessesTest, ProcessesWithUnlikeGpusAreRefused) {
  const auto pinned = std::make_shared<EmulatedPinned>();
  EmulatedGpu gpu({.devices = 2, .pinned = pinned});
  EmulatedGpu other(
      {.devices = 2, .properties = {.name = "Other", .major = 9, .minor = 0}, .pinned = pinned});
  JobSpec spec = JobOf(1, "unlike_gpus");
  spec.engine.device = "auto";
  for (const JobRun& run : TrainInProcesses(
           2, spec, [&](int ordinal) { return (ordinal == 0 ? gpu : other).opener()(ordinal); })) {
    EXPECT_EQ(run.status.code(), absl::StatusCode::kFailedPrecondition) << run.status;
    EXPECT_THAT(Message(run.status),
                AllOf(HasSubstr("plan: rank 1 has a device that computes as \"cuda, Other"),
                      HasSubstr("give all processes of the job devices of one kind")));
    EXPECT_TRUE(run.records.empty());
  }
}

// A launcher that gives no process a GPU of its own lets all of them have the only one.
TEST(CudaProcessesTest, TwoProcessesOnOneGpuAreRefused) {
  EmulatedGpu gpu;
  JobSpec spec = JobOf(1, "two_processes_one_gpu");
  spec.engine.device = "auto";
  for (const JobRun& run : TrainInProcesses(2, spec, gpu.opener())) {
    EXPECT_THAT(Message(run.status), HasSubstr("ranks 0 and 1 have the same GPU"));
  }
}

}  // namespace
}  // namespace megatrain
