// Whole jobs on several emulated GPUs, which exchange by a fake NCCL; no GPU has run one.
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
#include "engine/comm/nccl_communicator.h"
#include "engine/comm/thread_communicator.h"
#include "engine/device/cuda/cuda_kernel_sizes.h"
#include "engine/device/device_lost.h"
#include "engine/host/measure_exchange.h"
#include "engine/host/session.h"
#include "tests/engine/run/cuda_ranks_fixture.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(CudaRanksTest, SeveralGpusTrainAsOneDoes) {
  EmulatedGpu alone;
  const JobRun one = TrainOn(*Host(alone), JobOf(1, "one"));
  ASSERT_TRUE(one.status.ok()) << one.status;
  for (const int count : {2, 3}) {
    SCOPED_TRACE(count);
    Machine machine(count);
    Hooks hooks;
    std::vector<int64_t> allocated;
    hooks.step = [&](int64_t step) {
      if (step > 1) return;
      for (int i = 0; i < count; ++i) allocated.push_back(machine.gpu.edge(i).allocated_bytes());
    };
    const JobRun run = TrainOn(*machine.host, JobOf(count, "several"), hooks);
    ASSERT_TRUE(run.status.ok()) << run.status;
    ASSERT_EQ(run.records.size(), one.records.size());
    for (size_t k = 0; k < run.records.size(); ++k) {
      EXPECT_NEAR(run.records[k].loss, one.records[k].loss, 2e-3 * one.records[k].loss);
      EXPECT_NEAR(run.records[k].gradient_norm, one.records[k].gradient_norm,
                  2e-2 * one.records[k].gradient_norm);
      EXPECT_GT(run.records[k].lane_busy_seconds.collective, 0);
    }
    EXPECT_THAT(run.messages,
                Contains(AllOf(HasSubstr(absl::StrCat(count, " devices, the first of them cuda:0")),
                               HasSubstr(", NCCL 0.0.0 (fake); host "))));
    // Each GPU has what was planned, scratch included.
    EXPECT_GT(run.records[0].device_bytes, NcclScratchBytes(count));
    ASSERT_EQ(allocated.size(), static_cast<size_t>(count));
    for (const int64_t bytes : allocated) EXPECT_EQ(bytes, run.records[0].device_bytes);
    for (int i = 0; i < count; ++i) EXPECT_EQ(machine.gpu.edge(i).allocated_bytes(), 0);
    EXPECT_EQ(machine.nccl.loaded(), count);
  }
}

TEST(CudaRanksTest, WhatGpusReceiveFromEachOtherIsMeasured) {
  Machine machine(3);
  JobSpec::Engine engine;
  engine.device = "cuda";
  engine.devices = 3;
  std::vector<std::shared_ptr<Device>> gpus;
  {
    const auto session = machine.host->OpenSession(engine);
    ASSERT_TRUE(session.ok()) << session.status();
    for (const SessionRank& rank : (*session)->ranks) gpus.push_back(rank.device);
  }
  const auto rate = MeasureExchange(gpus, machine.nccl.loader(), int64_t{1} << 20);
  ASSERT_TRUE(rate.ok()) << rate.status();
  EXPECT_GT(*rate, 0);
  EXPECT_EQ(machine.gpu.edge(2).allocated_bytes(), 0);
  const auto none = MeasureExchange(
      gpus, [] { return absl::UnavailableError("no NCCL"); }, int64_t{1} << 20);
  EXPECT_EQ(none.status().message(), "no NCCL");
}

// The processes of a job lend their communicators, and use them afterwards.
TEST(CudaRanksTest, RanksMeasureTheirExchangeOverCommunicatorsThatAreLent) {
  constexpr int64_t kBytes = int64_t{1} << 20;
  EmulatedGpu gpu({.devices = 2});
  FakeNcclLoader loader(2);
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<NcclApi>> nccl;
  for (int i = 0; i < 2; ++i) {
    auto device = gpu.opener()(i);
    ASSERT_TRUE(device.ok()) << device.status();
    devices.push_back(*std::move(device));
    nccl.push_back(*loader.loader()());
  }
  std::vector<CommunicatorSet> communicators =
      CreateThreadCommunicators(2, absl::InfiniteDuration());
  const auto measure = [&] {
    std::vector<absl::StatusOr<double>> rates(2, 0.0);
    std::vector<std::thread> ranks;
    for (size_t i = 0; i < 2; ++i) {
      ranks.emplace_back([&, i] {
        const std::shared_ptr<Communicator> lent(communicators[i].tiles.get(),
                                                 [](Communicator*) {});
        rates[i] = MeasureExchange(devices[i].get(), nccl[i].get(), lent, kBytes);
      });
    }
    for (std::thread& rank : ranks) rank.join();
    return rates;
  };
  {
    const auto taken = devices[1]->Allocate(**devices[1]->FreeBytes() - kBytes);
    ASSERT_TRUE(taken.ok()) << taken.status();
    for (const absl::StatusOr<double>& rate : measure()) {
      EXPECT_EQ(rate.status().code(), absl::StatusCode::kResourceExhausted) << rate.status();
    }
  }
  for (int repetition = 0; repetition < 2; ++repetition) {
    const std::vector<absl::StatusOr<double>> rates = measure();
    ASSERT_TRUE(rates[0].ok() && rates[1].ok()) << rates[0].status() << rates[1].status();
    EXPECT_GT(*rates[0], 0);
    EXPECT_EQ(*rates[0], *rates[1]) << "the slowest rank's";
    EXPECT_EQ(gpu.edge(0).allocated_bytes() + gpu.edge(1).allocated_bytes(), 0);
  }
  for (const CommunicatorSet& set : communicators) EXPECT_TRUE(set.tiles->status().ok());
}

TEST(CudaRanksTest, TwoRunsGiveTheSameBitsWhereverTheUpdatesAreAndWhateverIsLoaded) {
  for (const bool clipped : {true, false}) {
    SCOPED_TRACE(clipped ? "clipped" : "unclipped");
    const auto job = [&](UpdateDevice update, WeightLoads loads, const std::string& directory) {
      JobSpec spec = JobOf(2, directory);
      spec.engine.loads = loads;
      if (!clipped) spec.optimizer.max_gradient_norm = 0;
      spec.engine.update_device = update;
      return spec;
    };
    Machine machine(2);
    const JobSpec spec = job(UpdateDevice::kHost, WeightLoads::kShards, "host");
    const JobRun expected = TrainOn(*machine.host, spec);
    ASSERT_TRUE(expected.status.ok()) << expected.status;
    for (const UpdateDevice update : {UpdateDevice::kHost, UpdateDevice::kDevice}) {
      for (const WeightLoads loads : {WeightLoads::kShards, WeightLoads::kWhole}) {
        const JobSpec again = job(update, loads, "again");
        ExpectSame(TrainOn(*machine.host, again), expected);
        EXPECT_TRUE(CheckpointTensorFiles(again) == CheckpointTensorFiles(spec));
      }
    }
  }
}

// The second leg goes on from the checkpoint of the first.
TEST(CudaRanksTest, WithGradientShardsTheNumberOfGpusDoesNotShow) {
  const auto job = [](int64_t devices, const std::string& directory) {
    JobSpec spec = JobOf(devices, directory);
    spec.training.gradient_shards = 2;
    return spec;
  };
  Machine machine(2);
  const JobSpec one = job(1, "one");
  const JobRun expected = TrainOn(*machine.host, one);
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  EXPECT_EQ(machine.nccl.loaded(), 0) << "one GPU needs no NCCL";
  const JobSpec two = job(2, "two");
  ExpectSame(TrainOn(*machine.host, two), expected);
  EXPECT_TRUE(CheckpointTensorFiles(two) == CheckpointTensorFiles(one));

  JobSpec legs = job(1, "legs");
  JobRun all = TrainOnHost(*machine.host, legs, /*stop_after=*/1);
  ASSERT_EQ(all.outcome, TrainingOutcome::kInterrupted) << all.status;
  legs.engine.devices = 2;
  const JobRun rest = TrainOn(*machine.host, legs);
  EXPECT_THAT(rest.messages, Not(Contains(HasSubstr("the checkpoint was made on"))));
  all.status = rest.status;
  all.records.insert(all.records.end(), rest.records.begin(), rest.records.end());
  ExpectSame(all, expected);
  EXPECT_TRUE(CheckpointTensorFiles(legs) == CheckpointTensorFiles(one));
}

TEST(CudaRanksTest, AllMeansThoseOfTheHost) {
  Machine machine(2);
  JobSpec spec = JobOf(0, "all");
  spec.training.steps = 1;
  const JobRun run = TrainOn(*machine.host, spec);
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_THAT(run.messages, Contains(HasSubstr("2 devices, the first of them cuda:0")));
  // The number is what the checkpoint tells of.
  spec.training.steps = 2;
  spec.engine.devices = 1;
  EXPECT_THAT(TrainOn(*machine.host, spec).messages,
              Contains(AllOf(HasSubstr("the checkpoint was made on"), HasSubstr(", 2 devices"))));
  EXPECT_EQ(machine.host->devices().count, 2);
  EXPECT_THAT(machine.host->DescribeDevice(1), HasSubstr("cuda:1"));
}

TEST(CudaRanksTest, MoreGpusThanThereAreForJobsAreRefused) {
  Machine machine(2);
  const JobSpec spec = JobOf(3, "more");
  const JobRun run = TrainOn(*machine.host, spec);
  EXPECT_EQ(run.status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(run.status), HasSubstr("engine.devices: a job has at most 2 GPUs here"));
  // So does a plan for a host, as a daemon makes it when a job is submitted.
  EmulatedGpu gpu;
  const auto served = Host(gpu);
  ASSERT_TRUE(served->ReservePool(int64_t{64} << 20, nullptr, nullptr).ok());
  const auto plan = PlanTraining(JobOf(2, "more"), served->budget(), PosixFileSystem());
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(plan.status()), HasSubstr("engine.devices: a job has at most one GPU here"));
  EXPECT_TRUE(PlanTraining(JobOf(0, "more"), served->budget(), PosixFileSystem()).ok());
}

TEST(CudaRanksTest, APlanCountsTheScratchAndLeavesRoomForNccl) {
  Machine machine(2);
  const auto plan = [&](int64_t devices) {
    const auto made =
        PlanTraining(JobOf(devices, "plan"), machine.host->budget(), PosixFileSystem());
    EXPECT_TRUE(made.ok()) << made.status();
    return *made;
  };
  const PlanReport one = plan(1), two = plan(2);
  EXPECT_EQ(two.devices, 2);
  EXPECT_THAT(two.table, HasSubstr("exchange with other GPUs"));
  EXPECT_EQ(two.device_limit_bytes, one.device_limit_bytes - two.device_reserve_bytes);
  EXPECT_GT(two.device_reserve_bytes, 0);
  EXPECT_THAT(one.table, Not(HasSubstr("exchange with other GPUs")));
  EXPECT_EQ(plan(0).devices, 2);
}

TEST(CudaRanksTest, GpusThatAreElsewhereArePlannedForByTheirNumber) {
  JobSpec spec = JobOf(4, "elsewhere");
  spec.engine.device_memory = int64_t{80} << 30;
  const auto plan = PlanTraining(spec);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->devices, 4);
  spec.engine.devices = 0;
  EXPECT_THAT(Message(PlanTraining(spec).status()), HasSubstr("engine.devices: all: "));
}

TEST(CudaRanksTest, WithoutNcclTheJobSaysWhereItWasLookedFor) {
  EmulatedGpu gpu({.devices = 2});
  const auto missing = []() -> absl::StatusOr<std::unique_ptr<NcclApi>> {
    return absl::UnavailableError("libnccl.so.2 is not found; looked for in /somewhere");
  };
  const JobRun run =
      TrainOn(*Host(gpu, "cuda", {.devices = 2, .load_nccl = missing}), JobOf(2, "no_nccl"));
  EXPECT_EQ(run.status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(run.status), HasSubstr("looked for in /somewhere"));
  EXPECT_THAT(Message(TrainOn(*Host(gpu, "cuda", {.devices = 2}), JobOf(2, "no_nccl")).status),
              HasSubstr("several GPUs exchange by NCCL"));
}

TEST(CudaRanksTest, TwoRanksOnOneGpuAreRefused) {
  Machine machine(2, {.properties = {.name = "Emulated", .uuid = "GPU-1", .major = 9, .minor = 0}});
  const JobRun run = TrainOn(*machine.host, JobOf(2, "one_gpu"));
  EXPECT_EQ(run.status.code(), absl::StatusCode::kFailedPrecondition) << run.status;
  EXPECT_THAT(Message(run.status), HasSubstr("ranks 0 and 1 have the same GPU"));
}

TEST(CudaRanksTest, UnequalMemoryIsToldAndTheLeastIsPlannedWith) {
  const auto pinned = std::make_shared<EmulatedPinned>();
  EmulatedGpu large({.devices = 2, .pinned = pinned});
  EmulatedGpu small({.devices = 2, .memory_bytes = int64_t{3} << 30, .pinned = pinned});
  EngineHostOptions options;
  options.device = "cuda";
  options.threads = 2;
  options.devices = 2;
  options.open_gpu = [&](int ordinal) { return (ordinal == 0 ? large : small).opener()(ordinal); };
  FakeNcclLoader nccl(2);
  options.load_nccl = nccl.loader();
  const auto host = EngineHost::Create(options);
  ASSERT_TRUE(host.ok()) << host.status();
  ASSERT_TRUE((*host)->ReservePool(int64_t{64} << 20, nullptr, nullptr).ok());
  EXPECT_LT((*host)->BudgetNow({0, 1})->device_bytes, int64_t{3} << 30);
  JobSpec spec = JobOf(2, "unequal");
  spec.training.steps = 1;
  const JobRun run = TrainOn(**host, spec);
  ASSERT_TRUE(run.status.ok()) << run.status;
  EXPECT_THAT(run.messages, Contains(AllOf(HasSubstr("the GPUs have unequal memory free, "),
                                           HasSubstr(" (cuda:1) to "), HasSubstr(" (cuda:0): "))));
  // A daemon knows them one by one.
  const HostDevices devices = (*host)->budget().devices;
  ASSERT_EQ(devices.bytes.size(), 2u);
  EXPECT_EQ(devices.ByMemory(), (std::vector<std::vector<int>>{{1}, {0}}));
  EXPECT_EQ((*host)->DeviceMemoryBytes(1), int64_t{3} << 30);
  spec.engine.devices = 1;
  for (const int number : {0, 1}) {
    spec.engine.device = HostDevices::CudaId(number);
    const auto plan = PlanTraining(spec, (*host)->budget(), PosixFileSystem());
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(plan->device_limit_bytes, devices.bytes[static_cast<size_t>(number)]);
  }
}

// The GPUs have no room for the measurement of products, which would take hours on an emulation.
TEST(CudaRanksTest, APlanOnTheMachineItselfMeasuresTheRateBetweenGpusAsARunDoes) {
  EmulatedGpu gpu({.devices = 2, .memory_bytes = int64_t{2} << 30});
  FakeNcclLoader nccl(2);
  const auto plan = [&](int64_t devices, int nodes = 1) {
    const auto made =
        PlanTraining(JobOf(devices, "measured"), gpu.opener(), {}, nodes, nccl.loader());
    EXPECT_TRUE(made.ok()) << made.status();
    return made.value_or(PlanReport());
  };
  EXPECT_EQ(plan(1).places.size(), 1u);
  EXPECT_EQ(nccl.loaded(), 0);
  EXPECT_EQ(plan(2).places.size(), 2u);
  EXPECT_EQ(nccl.loaded(), 2);
  // Of a network, and of GPUs that are not here, nothing is measured.
  EXPECT_EQ(plan(2, /*nodes=*/2).places.size(), 2u);
  EXPECT_EQ(plan(4).devices, 4);
  EXPECT_EQ(nccl.loaded(), 2);
  // Where the network's rate is given, what is within a machine is wanted.
  (void)PlanTraining(JobOf(2, "measured"), gpu.opener(), {"network=45"}, /*nodes=*/2,
                     nccl.loader());
  EXPECT_EQ(nccl.loaded(), 4);
}

// Scratch and communicators are kept while a job is paused.
TEST(CudaRanksTest, APauseGivesTheArenasBack) {
  Machine machine(2);
  const JobSpec plain = JobOf(2, "plain"), spec = JobOf(2, "paused");
  const JobRun expected = TrainOn(*machine.host, plain);
  TrainingControl control;
  std::vector<int64_t> paused;
  Hooks hooks;
  hooks.step = [&](int64_t step) {
    if (step == 1) control.Pause();
  };
  hooks.paused = [&] {
    for (int i = 0; i < 2; ++i) paused.push_back(machine.gpu.edge(i).allocated_bytes());
    control.Resume();
  };
  ExpectSame(TrainOn(*machine.host, spec, hooks, &control), expected);
  const int64_t kept = CudaKernelSizes().StreamWorkspaceBytes() + NcclScratchBytes(2);
  EXPECT_EQ(paused, std::vector<int64_t>(2, kept));
}

TEST(CudaRanksTest, MemoryThatOneGpuHasNotEndsTheJob) {
  for (const int after : {0, 1}) {  // the scratch, the arena
    Machine machine(2);
    machine.gpu.edge(1).Fail("Malloc", kCudaMemoryAllocation, after);
    const JobRun run = TrainOn(*machine.host, JobOf(2, "no_memory"));
    EXPECT_EQ(run.status.code(), absl::StatusCode::kResourceExhausted) << run.status;
    EXPECT_THAT(Message(run.status), HasSubstr("cannot be allocated"));
  }
}

struct Fault {
  std::string name;
  bool clipped = true;
  std::function<void(Machine&)> fail;
  std::string told;
  bool lost = false;
};

class CudaRanksFaultTest : public ::testing::TestWithParam<Fault> {};

// In the step after the first checkpoint, which is what remains.
TEST_P(CudaRanksFaultTest, OfOneRankEndsAllWithTheFirstCause) {
  const Fault& fault = GetParam();
  const auto job = [&](const std::string& directory) {
    JobSpec spec = JobOf(2, directory);
    spec.training.steps = 3;
    if (!fault.clipped) spec.optimizer.max_gradient_norm = 0;
    return spec;
  };
  const JobSpec plain = job("plain"), spec = job("fault");
  const JobRun expected = TrainOn(*Machine(2).host, plain);
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  {
    Machine machine(2);
    Hooks hooks;
    hooks.checkpoint = [&](int64_t step) {
      if (step == 1) fault.fail(machine);
    };
    const JobRun run = TrainOn(*machine.host, spec, hooks);
    ASSERT_FALSE(run.status.ok());
    EXPECT_THAT(Message(run.status), HasSubstr(fault.told));
    EXPECT_EQ(IsDeviceLost(run.status), fault.lost) << run.status;
    EXPECT_LT(run.records.size(), size_t{3});
  }
  const JobRun resumed = TrainOn(*Machine(2).host, spec);
  ASSERT_TRUE(resumed.status.ok()) << resumed.status;
  EXPECT_TRUE(CheckpointTensorFiles(spec) == CheckpointTensorFiles(plain));
}

Fault OfNccl(const std::string& name, const std::string& method, int rank, bool clipped,
             const std::string& told) {
  return {name, clipped, [=](Machine& machine) { machine.nccl.of(rank).Fail(method, 3, 2); }, told};
}
Fault OfCuda(const std::string& name, const std::string& method, int error, bool lost,
             const std::string& told) {
  return {name, true,
          [=](Machine& machine) { machine.gpu.edge(1).Fail(method, error, 2, /*sticky=*/lost); },
          told, lost};
}

INSTANTIATE_TEST_SUITE_P(
    Calls, CudaRanksFaultTest,
    ::testing::Values(
        // It is seen where a later group is queued, or by the thread that watches.
        OfNccl("Operation", "Operation", 1, true, "fake error 3"),
        OfNccl("OperationUnclipped", "Operation", 0, false, "fake error 3"),
        OfNccl("GroupEnd", "GroupEnd", 1, true, "rank 1: queueing operations: fake error 3"),
        OfNccl("AsyncError", "AsyncError", 0, true, "fake error 3"),
        OfCuda("Launch", "Launch", 9, false, "emulated error 9"),
        OfCuda("CopyToHostLost", "CopyToHost", kIllegalAddress, true, "emulated error 700"),
        OfCuda("EventQueryLost", "EventQuery", kIllegalAddress, true, "emulated error 700")),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace megatrain
