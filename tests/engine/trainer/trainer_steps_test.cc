// What a trainer does beside plain steps: steps that are taken back, devices that are given back,
// weights that change, saves and steps that fail.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "engine/memory/pool_busy.h"
#include "tests/engine/trainer/small_trainer.h"

namespace megatrain {
namespace {

// The weights of frozen layers stay in the weight buffers from step to step.
JobSpec FrozenLayersJob() {
  JobSpec spec = SmallJob();
  spec.training.freeze = {"model.layers.*"};
  return spec;
}

void ExpectSameStep(const StepRecord& record, const StepRecord& expected) {
  EXPECT_EQ(record.step, expected.step);
  EXPECT_EQ(record.loss, expected.loss) << "step " << expected.step;
  EXPECT_EQ(record.gradient_norm, expected.gradient_norm) << "step " << expected.step;
}

// Nothing of them has run, so that the buffers hold nothing of what the steps were to load.
TEST(TrainerStepsTest, StepsThatWereTakenBackAreMadeAsIfForTheFirstTime) {
  for (const JobSpec& spec : {SmallJob(), FrozenLayersJob()}) {
    const auto plain = StartSmall(spec), small = StartSmall(spec);
    Hold hold(small->device, "upload batch");
    EXPECT_TRUE(small->trainer->Submit(SmallStep(1), 1e-2).ok());
    EXPECT_TRUE(small->trainer->Submit(SmallStep(2), 1e-2).ok());
    EXPECT_TRUE(small->trainer->Withdraw(/*during_backward=*/true));
    EXPECT_EQ(small->trainer->in_flight(), 1);
    EXPECT_TRUE(small->trainer->Withdraw(/*during_backward=*/true));
    EXPECT_EQ(small->trainer->in_flight(), 0);
    hold.LetGo();
    const absl::Status settled = small->trainer->SettleWithdrawn();
    EXPECT_TRUE(settled.ok()) << settled;
    for (const int64_t step : {1, 2}) ExpectSameStep(small->Step(step), plain->Step(step));
    EXPECT_TRUE(small->State() == plain->State());
  }
}

// The first one goes on: what it left in the buffers is there, what the second was to load is not.
TEST(TrainerStepsTest, AStepBehindAnotherIsTakenBackAlone) {
  const JobSpec spec = FrozenLayersJob();
  const auto plain = StartSmall(spec), small = StartSmall(spec);
  Hold hold(small->device, "upload batch");
  EXPECT_TRUE(small->trainer->Submit(SmallStep(1), 1e-2).ok());
  EXPECT_TRUE(small->trainer->Submit(SmallStep(2), 1e-2).ok());
  EXPECT_TRUE(small->trainer->Withdraw(/*during_backward=*/false));
  hold.LetGo();
  ExpectSameStep(small->Collect(), plain->Step(1));
  const absl::Status settled = small->trainer->SettleWithdrawn();
  EXPECT_TRUE(settled.ok()) << settled;
  EXPECT_TRUE(small->State() == plain->State()) << "nothing of the second step is left";
  for (const int64_t step : {2, 3}) ExpectSameStep(small->Step(step), plain->Step(step));
  EXPECT_TRUE(small->State() == plain->State());
}

TEST(TrainerStepsTest, SeveralRanksTakeNoStepBack) {
  JobSpec spec = SmallJob();
  spec.engine.devices = 2;
  const auto plain = StartSmall(spec), small = StartSmall(spec);
  Hold hold(small->device, "upload batch");
  EXPECT_TRUE(small->trainer->Submit(SmallStep(1), 1e-2).ok());
  EXPECT_FALSE(small->trainer->Withdraw(/*during_backward=*/true));
  EXPECT_EQ(small->trainer->in_flight(), 1);
  hold.LetGo();
  ExpectSameStep(small->Collect(), plain->Step(1));
  EXPECT_TRUE(small->State() == plain->State());
}

TEST(TrainerStepsTest, WaitingForAStepEndsWhenToldAndTheStepGoesOn) {
  for (const int64_t ranks : {1, 2}) {
    JobSpec spec = SmallJob();
    spec.engine.devices = ranks;
    const auto plain = StartSmall(spec), small = StartSmall(spec);
    Hold hold(small->device, "upload batch");
    EXPECT_TRUE(small->trainer->Submit(SmallStep(1), 1e-2).ok());
    EXPECT_FALSE(small->trainer->AwaitStep([] { return true; }));
    EXPECT_EQ(small->trainer->in_flight(), 1);
    hold.LetGo();
    EXPECT_TRUE(small->trainer->AwaitStep([] { return false; }));
    ExpectSameStep(small->Collect(), plain->Step(1));
  }
}

// Its memory is other memory: neither weights nor tables of angles are there.
TEST(TrainerStepsTest, ADeviceThatWasGivenBackAndTakenAgainHoldsNothing) {
  for (const int64_t ranks : {1, 2}) {
    JobSpec spec = FrozenLayersJob();
    spec.engine.devices = ranks;
    const auto plain = StartSmall(spec), small = StartSmall(spec);
    ExpectSameStep(small->Step(1), plain->Step(1));
    EXPECT_TRUE(small->trainer->holds_device());
    small->trainer->ReleaseDevice();
    EXPECT_FALSE(small->trainer->holds_device());
    EXPECT_TRUE(small->State() == plain->State()) << "the state is kept";
    const absl::Status taken = small->trainer->TakeDevice();
    ASSERT_TRUE(taken.ok()) << taken;
    EXPECT_TRUE(small->trainer->holds_device());
    for (const int64_t step : {2, 3}) ExpectSameStep(small->Step(step), plain->Step(step));
    EXPECT_TRUE(small->State() == plain->State());
  }
}

TEST(TrainerStepsTest, ADeviceWithoutMemoryForAllRanksIsNotHeldAndMayBeTakenLater) {
  JobSpec spec = SmallJob();
  spec.engine.devices = 2;
  const auto plain = StartSmall(spec), small = StartSmall(spec);
  small->trainer->ReleaseDevice();
  int left = 1;  // allocations that succeed: the first rank's
  small->device.allocates = [&] {
    return left-- > 0 ? absl::OkStatus() : absl::ResourceExhaustedError("another has it");
  };
  const absl::Status refused = small->trainer->TakeDevice();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
  EXPECT_FALSE(small->trainer->holds_device());
  small->device.allocates = nullptr;
  const absl::Status taken = small->trainer->TakeDevice();
  ASSERT_TRUE(taken.ok()) << taken;
  ExpectSameStep(small->Step(1), plain->Step(1));
}

// There is a buffer for every tile, so that an evaluation leaves them all on the device.
TEST(TrainerStepsTest, WeightsThatWereChangedAreLoadedAgain) {
  for (const int64_t ranks : {1, 2}) {
    JobSpec spec = SmallJob();
    spec.engine.weight_buffers = kSmallLayers + 2;
    spec.engine.devices = ranks;
    const auto other = StartSmall(spec), small = StartSmall(spec);
    other->FillTiles(/*seed=*/2);
    const absl::StatusOr<double> expected = other->trainer->EvaluateLossSum(SmallStep(1));
    const absl::StatusOr<double> before = small->trainer->EvaluateLossSum(SmallStep(1));
    ASSERT_TRUE(expected.ok() && before.ok()) << expected.status() << before.status();
    EXPECT_NE(*before, *expected);
    small->FillTiles(/*seed=*/2);
    small->trainer->InvalidateDeviceWeights();
    const absl::StatusOr<double> after = small->trainer->EvaluateLossSum(SmallStep(1));
    ASSERT_TRUE(after.ok()) << after.status();
    EXPECT_EQ(*after, *expected);
  }
}

// The step's update fails, so that there is no state to save.
TEST(TrainerStepsTest, ASaveThatAFailedStepKeptFromItsEndHasTheStepsError) {
  for (const int64_t ranks : {1, 2}) {
    JobSpec spec = SmallJob();
    spec.training.precision = Precision::kBf16;
    spec.engine.devices = ranks;
    const auto small = StartSmall(spec);
    Hold hold(small->device, "upload batch");
    EXPECT_TRUE(small->trainer->Submit(SmallStep(1), HUGE_VAL).ok());
    int taken = 0, finished = 0;
    small->trainer->BeginSave({[&](int, const ProcessTile&) { ++taken; }, [&] { ++finished; }});
    hold.LetGo();
    EXPECT_EQ(small->trainer->Collect().status().code(), absl::StatusCode::kAborted);
    EXPECT_EQ(small->trainer->in_flight(), 0) << "it counts as collected";
    small->trainer->CommitSave();
    EXPECT_EQ(small->trainer->AwaitSave().code(), absl::StatusCode::kAborted);
    EXPECT_EQ(taken, 0);
    EXPECT_EQ(finished, 0);
    // No later call is made either: the model is not what a step has left.
    EXPECT_EQ(small->trainer->Submit(SmallStep(2), 1e-2).code(), absl::StatusCode::kAborted);
    EXPECT_EQ(small->trainer->EvaluateLossSum(SmallStep(2)).status().code(),
              absl::StatusCode::kAborted);
  }
}

TEST(TrainerStepsTest, ASaveIsDoneOnceItsEndHasRun) {
  const auto small = StartSmall(SmallJob());
  small->Step(1);
  EXPECT_FALSE(small->trainer->save_done()) << "there is none";
  std::promise<void> end;
  std::vector<int> taken;
  small->trainer->BeginSave({[&](int tile, const ProcessTile&) { taken.push_back(tile); },
                             [&, ended = end.get_future().share()] { ended.wait(); }});
  EXPECT_FALSE(small->trainer->save_done());
  small->trainer->CommitSave();
  EXPECT_FALSE(small->trainer->save_done()) << "its end is under way";
  end.set_value();
  const absl::Status saved = small->trainer->AwaitSave();
  EXPECT_TRUE(saved.ok()) << saved;
  EXPECT_EQ(taken.size(), static_cast<size_t>(small->layout.tile_count()));
  EXPECT_FALSE(small->trainer->save_done()) << "it is over, and there is no other";
}

// The pool has room for this job alone.
TEST(TrainerStepsTest, WithoutItsMemoryATrainerIsRefusedAndLeavesNothing) {
  for (const int64_t ranks : {1, 2}) {
    JobSpec spec = SmallJob();
    spec.engine.devices = ranks;
    SmallTrainer small;
    ASSERT_NO_FATAL_FAILURE(small.Plan(spec));
    const int64_t capacity = small.host_pool->capacity();
    HostLease other = *small.host_pool->Lease(HostKind::kOther, 1);
    const absl::Status refused = small.Create(spec, Communicators(static_cast<int>(ranks)));
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
    EXPECT_TRUE(IsPoolBusy(refused)) << refused;
    EXPECT_EQ(small.host_pool->free_bytes(), capacity - HostPool::LeaseBytes(1));
    other.Release();
    small.device.allocates = [] { return absl::ResourceExhaustedError("no device memory"); };
    const absl::Status no_device = small.Create(spec, Communicators(static_cast<int>(ranks)));
    EXPECT_EQ(no_device.code(), absl::StatusCode::kResourceExhausted) << no_device;
    EXPECT_FALSE(IsPoolBusy(no_device)) << no_device;
    EXPECT_EQ(small.host_pool->free_bytes(), capacity);
    small.device.allocates = nullptr;
    const absl::Status created = small.Create(spec, Communicators(static_cast<int>(ranks)));
    EXPECT_TRUE(created.ok()) << created;
  }
}

}  // namespace
}  // namespace megatrain
