// Tests of several GPUs together: communicators over NCCL, and jobs on two GPUs and on all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/comm/nccl_api.h"
#include "engine/comm/nccl_communicator.h"
#include "engine/comm/thread_communicator.h"
#include "engine/engine.h"
#include "engine/host/session.h"
#include "tests/engine/comm/communicator_checks.h"
#include "tests/engine/comm/nccl_ranks.h"
#include "tests/engine/device/kernels_under_test.h"
#include "tests/engine/numerics/job_run.h"
#include "tests/engine/numerics/model_reference.h"
#include "tests/engine/run/hooked_run.h"
#include "tests/gpu/gpu_job.h"
#include "tests/gpu/gpu_under_test.h"
#include "tests/gpu/watched_cuda.h"

namespace megatrain {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// Endless, as in training: nothing but a cause ends an operation.
constexpr NcclPatience kPatience = {absl::InfiniteDuration(), absl::InfiniteDuration()};

// The GPUs and a host that has opened them. A suite's tests share it: opening takes seconds a GPU.
struct Machine {
  static absl::StatusOr<std::unique_ptr<Machine>> Open() {
    const int count = SeveralGpusUnderTest();
    if (count < 2) return absl::FailedPreconditionError("needs two GPUs, has one");
    auto machine = std::make_unique<Machine>();
    EngineHostOptions options;
    options.device = "cuda:0";
    options.devices = count;
    options.load_nccl = LoadNccl;
    options.open_gpu = [&](int ordinal) -> absl::StatusOr<std::unique_ptr<Device>> {
      auto cuda = std::make_unique<WatchedCuda>(OpenCudaApi());
      machine->cuda.push_back(cuda.get());
      return CreateCudaDevice(std::move(cuda), ordinal);
    };
    MT_ASSIGN_OR_RETURN(machine->host, EngineHost::Create(options));
    MT_RETURN_IF_ERROR(machine->host->ReservePool(64 * kMiB, nullptr, nullptr));
    OpenedGpusUnderTest() = count;
    return machine;
  }

  int gpus() const { return static_cast<int>(cuda.size()); }
  // Two of them, and all.
  std::vector<int> counts() const { return gpus() == 2 ? std::vector{2} : std::vector{2, gpus()}; }
  int64_t free_bytes(int ordinal) {
    int64_t free_bytes = 0, total_bytes = 0;
    EXPECT_EQ(cuda[static_cast<size_t>(ordinal)]->SetDevice(ordinal), kCudaSuccess);
    EXPECT_EQ(cuda[static_cast<size_t>(ordinal)]->MemoryInfo(&free_bytes, &total_bytes),
              kCudaSuccess);
    return free_bytes;
  }
  void ExpectNothingAllocated() const {
    for (const WatchedCuda* const gpu : cuda) EXPECT_EQ(gpu->allocated_bytes(), 0);
  }

  std::vector<WatchedCuda*> cuda;  // of the host's devices
  std::unique_ptr<EngineHost> host;
};

template <typename Base>
class OnMachine : public Base {
 protected:
  // Within a test, so that it counts as hanging if the GPUs cannot be opened.
  void SetUp() override {
    if (machine_ != nullptr) return;
    absl::StatusOr<std::unique_ptr<Machine>> opened = Machine::Open();
    ASSERT_TRUE(opened.ok()) << opened.status();
    machine_ = *std::move(opened);
  }
  static void TearDownTestSuite() { machine_ = nullptr; }

  static inline std::unique_ptr<Machine> machine_;
};

class GpuNcclTest : public OnMachine<::testing::Test> {
 protected:
  void MakeRanks(int count) {
    JobSpec::Engine engine;
    engine.device = "cuda:0";
    engine.devices = count;
    const auto session = machine_->host->OpenSession(engine);
    ASSERT_TRUE(session.ok()) << session.status();
    ranks_.clear();
    for (const SessionRank& rank : (*session)->ranks) {
      absl::StatusOr<std::unique_ptr<NcclApi>> nccl = LoadNccl();
      ASSERT_TRUE(nccl.ok()) << nccl.status();
      auto made = NcclRank::Create(rank.device, *std::move(nccl));
      ASSERT_TRUE(made.ok()) << made.status();
      ranks_.push_back(*std::move(made));
    }
    sets_ = CreateThreadCommunicators(count, absl::InfiniteDuration());
  }

  NcclRank& rank(int rank) { return *ranks_[static_cast<size_t>(rank)]; }

  // Gathers with all, and waits for the GPU. Returns the first cause.
  absl::Status Gather(int of) {
    const int64_t part = 1000;
    const int count = static_cast<int>(ranks_.size());
    void* const data =
        rank(of).Buffers().make(std::vector<char>(static_cast<size_t>(part * count)));
    std::vector<int64_t> cuts;
    for (int i = 0; i <= count; ++i) cuts.push_back(part * i);
    MT_RETURN_IF_ERROR(rank(of).communicator().AllGather(rank(of).stream(), data, cuts));
    MT_RETURN_IF_ERROR(rank(of).Synchronize());
    return rank(of).communicator().status();
  }
  // Waits for the first error of the ranks and returns it.
  absl::Status Wait(int of) {
    while (rank(of).communicator().status().ok()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return rank(of).communicator().status();
  }

  std::vector<std::unique_ptr<NcclRank>> ranks_;
  std::vector<CommunicatorSet> sets_;
};

TEST_F(GpuNcclTest, OperationsGiveTheSameBitsForAnyNumberOfRanks) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  const int64_t elements = SizeIsTested(1 << 20) ? (1 << 20) + 3 : 7003;
  for (int count = 2; count <= std::min(machine_->gpus(), 4); ++count) {
    // In many pieces, and in few.
    for (const int64_t scratch_bytes : {int64_t{1} << 14, NcclScratchBytes(count)}) {
      SCOPED_TRACE(absl::StrCat(count, " ranks, scratch of ", scratch_bytes));
      ASSERT_NO_FATAL_FAILURE(MakeRanks(count));
      for (const absl::Status& status :
           OnEachNcclRank(ranks_, sets_, scratch_bytes, kPatience, [&](int of) {
             return CheckOperations(rank(of).communicator(), rank(of).stream(), rank(of).Buffers(),
                                    seed, elements, {.reductions = count - 1});
           })) {
        EXPECT_TRUE(status.ok()) << status;
      }
    }
  }
}

TEST_F(GpuNcclTest, ARankThatDoesNotComeEndsTheOthersByTheDeadline) {
  ASSERT_NO_FATAL_FAILURE(MakeRanks(2));
  const absl::Duration deadline =
      SizeIsTested(1 << 20) ? absl::Seconds(10) : absl::Milliseconds(500);
  for (const absl::Status& status :
       OnEachNcclRank(ranks_, sets_, NcclScratchBytes(2),
                      {.meeting = absl::InfiniteDuration(), .operation = deadline},
                      [&](int of) { return of == 0 ? Gather(of) : Wait(of); })) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("for other ranks in AllGather of"));
  }
}

TEST_F(GpuNcclTest, AnAbortOfAnotherCommunicatorFreesTheStreams) {
  ASSERT_NO_FATAL_FAILURE(MakeRanks(2));
  const absl::Status cause = absl::DataLossError("the disk of rank 1 is gone");
  for (const absl::Status& status :
       OnEachNcclRank(ranks_, sets_, NcclScratchBytes(2), kPatience, [&](int of) {
         if (of == 1) sets_[1].control->Abort(cause);
         return Gather(of);
       })) {
    EXPECT_EQ(status, cause);
  }
}

class GpuRanksTest
    : public OnMachine<::testing::TestWithParam<std::tuple<std::string, Precision>>> {
 protected:
  static constexpr int64_t kSteps = 3;

  // Returns a job with a micro-batch a step for each GPU, four at least.
  JobSpec Job(int64_t devices, bool clipped, const std::string& directory) const {
    JobSpec spec = GpuJob(reference_, precision_, clipped, directory);
    spec.training.steps = kSteps;
    spec.training.micro_batch = 1;
    spec.training.global_batch = std::max(4, machine_->gpus());
    spec.engine.devices = devices;
    return spec;
  }
  // Returns a job that gives the same bits on any number of GPUs.
  JobSpec ShardedJob(int64_t devices, const std::string& directory) const {
    JobSpec spec = Job(devices, /*clipped=*/true, directory);
    spec.training.gradient_shards = machine_->gpus();
    return spec;
  }

  const ModelReference reference_ = LoadModelReference(std::get<0>(GetParam()));
  const Precision precision_ = std::get<1>(GetParam());
};

TEST_P(GpuRanksTest, TrainAsOneDoes) {
  const JobRun one = TrainOnHost(*machine_->host, Job(1, true, "one"));
  ASSERT_TRUE(one.status.ok()) << one.status;
  const bool fp32 = precision_ == Precision::kFp32;
  // BF16 activations round where sums of another order differ in their last bit.
  const double loss_limit = fp32 ? 1e-5 : 2e-3, norm_limit = fp32 ? 1e-4 : 2e-2;
  for (const int count : machine_->counts()) {
    SCOPED_TRACE(absl::StrCat(count, " GPUs"));
    const JobRun run = TrainOnHost(*machine_->host, Job(count, true, "several"));
    ASSERT_TRUE(run.status.ok()) << run.status;
    EXPECT_THAT(run.messages, Contains(HasSubstr(absl::StrCat(count, " devices, the first"))));
    ASSERT_EQ(run.records.size(), one.records.size());
    for (size_t k = 0; k < run.records.size(); ++k) {
      SCOPED_TRACE(absl::StrCat("step ", k + 1));
      const StepRecord &got = run.records[k], &want = one.records[k];
      EXPECT_NEAR(got.loss, want.loss, loss_limit * want.loss);
      EXPECT_NEAR(got.gradient_norm, want.gradient_norm, norm_limit * want.gradient_norm);
      EXPECT_GT(got.lane_busy_seconds.collective, 0);
    }
  }
}

// On as many GPUs as the reference's batch has sequences, at most.
TEST_P(GpuRanksTest, FollowTheReferencesLosses) {
  for (const bool clipped : {false, true}) {
    SCOPED_TRACE(clipped ? "clipped" : "not clipped");
    JobSpec spec = GpuJob(reference_, precision_, clipped, "curve");
    spec.training.micro_batch = 1;
    spec.engine.devices = std::min<int64_t>(machine_->gpus(), spec.training.global_batch);
    ExpectReferencesCurve(reference_, precision_, clipped, TrainOnHost(*machine_->host, spec));
  }
}

TEST_P(GpuRanksTest, HaveTheMemoryThatIsPlanned) {
  for (const int count : machine_->counts()) {
    SCOPED_TRACE(absl::StrCat(count, " GPUs"));
    const JobSpec spec = Job(count, true, "memory");
    const absl::StatusOr<PlanReport> plan =
        PlanTraining(spec, machine_->host->budget(), PosixFileSystem());
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::vector<int64_t> free_before, taken, allocated;
    for (int i = 0; i < count; ++i) free_before.push_back(machine_->free_bytes(i));
    HookedRun hooked;
    hooked.step = [&](int64_t step) {
      for (int i = 0; i < count && step == kSteps - 1; ++i) {
        allocated.push_back(machine_->cuda[static_cast<size_t>(i)]->allocated_bytes());
        taken.push_back(free_before[static_cast<size_t>(i)] - machine_->free_bytes(i));
      }
    };
    const auto outcome = hooked.Train(*machine_->host, spec);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    const int64_t planned = hooked.run.records[0].device_bytes;
    EXPECT_GT(planned, NcclScratchBytes(count));
    EXPECT_EQ(allocated, std::vector<int64_t>(static_cast<size_t>(count), planned));
    // What NCCL and the libraries take by themselves has room in what is left free for it.
    for (const int64_t bytes : taken) {
      EXPECT_LE(bytes, planned + plan->device_reserve_bytes)
          << FormatBytes(bytes - planned) << " beside what is planned";
    }
    machine_->ExpectNothingAllocated();
  }
}

TEST_P(GpuRanksTest, GiveTheSameBitsWhereverTheUpdatesAreAndWhateverIsLoaded) {
  for (const bool clipped : {true, false}) {
    const auto job = [&](UpdateDevice update, WeightLoads loads, const std::string& directory) {
      JobSpec spec = Job(machine_->gpus(), clipped, directory);
      spec.engine.update_device = update;
      spec.engine.loads = loads;
      return spec;
    };
    const JobSpec plain = job(UpdateDevice::kHost, WeightLoads::kShards, "plain");
    const JobRun expected = TrainOnHost(*machine_->host, plain);
    ASSERT_TRUE(expected.status.ok()) << expected.status;
    for (const UpdateDevice update : {UpdateDevice::kHost, UpdateDevice::kDevice}) {
      for (const WeightLoads loads : {WeightLoads::kShards, WeightLoads::kWhole}) {
        SCOPED_TRACE(absl::StrCat(clipped ? "clipped" : "not clipped", ", updates on the ",
                                  update == UpdateDevice::kHost ? "host" : "device", ", loads ",
                                  loads == WeightLoads::kShards ? "shards" : "whole"));
        const JobSpec spec = job(update, loads, "variant");
        ExpectSameBits(spec, TrainOnHost(*machine_->host, spec), plain, expected);
      }
    }
  }
}

TEST_P(GpuRanksTest, WithGradientShardsTheirNumberDoesNotShow) {
  const JobSpec one = ShardedJob(1, "one");
  const JobRun expected = TrainOnHost(*machine_->host, one);
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  for (const int count : machine_->counts()) {
    SCOPED_TRACE(absl::StrCat(count, " GPUs"));
    const JobSpec several = ShardedJob(count, "several");
    ExpectSameBits(several, TrainOnHost(*machine_->host, several), one, expected);
  }
  // Stopped behind a step at the earliest, and resumed on others.
  JobSpec legs = ShardedJob(1, "legs");
  JobRun all;
  for (const int count : {1, machine_->gpus(), 2}) {
    legs.engine.devices = count;
    const int64_t stop_after = static_cast<int64_t>(all.records.size()) + 1;
    const JobRun leg =
        TrainOnHost(*machine_->host, legs, stop_after < kSteps ? stop_after : /*never=*/0);
    ASSERT_TRUE(leg.status.ok()) << leg.status;
    all.records.insert(all.records.end(), leg.records.begin(), leg.records.end());
  }
  ExpectSameBits(legs, all, one, expected);
}

// The others wait on their GPUs for one that fails.
TEST_P(GpuRanksTest, AFailureOfOneEndsAllAndTheJobGoesOnFromItsCheckpoint) {
  const auto job = [&](const std::string& directory) {
    JobSpec spec = Job(machine_->gpus(), true, directory);
    spec.training.steps = kSteps + 2;
    spec.checkpoint.every_steps = 1;
    return spec;
  };
  const JobSpec plain = job("plain"), spec = job("failing");
  const JobRun expected = TrainOnHost(*machine_->host, plain);
  ASSERT_TRUE(expected.status.ok()) << expected.status;
  HookedRun hooked;
  hooked.step = [&](int64_t step) {
    // The save of step 1 has ended then: that of step 2 has waited for it.
    if (step == 2) machine_->cuda[1]->FailCopiesToHost(/*after=*/2);
  };
  const auto outcome = hooked.Train(*machine_->host, spec);
  machine_->cuda[1]->Heal();
  EXPECT_FALSE(outcome.ok());
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("cudaMemcpyAsync to the host"));
  EXPECT_LT(hooked.run.records.size(), static_cast<size_t>(spec.training.steps));
  machine_->ExpectNothingAllocated();
  const JobRun resumed = TrainOnHost(*machine_->host, spec);
  ASSERT_TRUE(resumed.status.ok()) << resumed.status;
  ASSERT_FALSE(resumed.records.empty());
  EXPECT_GT(resumed.records.front().step, 1) << "it began anew";
  EXPECT_TRUE(CheckpointTensorFiles(spec) == CheckpointTensorFiles(plain));
}

INSTANTIATE_TEST_SUITE_P(Families, GpuRanksTest,
                         ::testing::Values(std::tuple("qwen2", Precision::kBf16),
                                           std::tuple("llama", Precision::kFp32),
                                           std::tuple("mixtral", Precision::kBf16)),
                         [](const auto& info) {
                           return std::get<0>(info.param) +
                                  (std::get<1>(info.param) == Precision::kFp32 ? "_fp32" : "_bf16");
                         });

}  // namespace
}  // namespace megatrain
