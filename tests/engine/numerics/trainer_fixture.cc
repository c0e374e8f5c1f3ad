#include "tests/engine/numerics/trainer_fixture.h"

#include <utility>

#include "engine/hf/hf_weights.h"
#include "tests/engine/device/device_under_test.h"

namespace megatrain {
namespace {

constexpr int64_t kHostBytes = int64_t{1} << 30;

}  // namespace

void TrainerFixture::SetUp() {
  absl::StatusOr<std::unique_ptr<Device>> device = MakeDeviceUnderTest(&pool_);
  if (absl::IsNotFound(device.status()) || absl::IsUnavailable(device.status())) {
    GTEST_SKIP() << device.status();
  }
  ASSERT_TRUE(device.ok()) << device.status();
  device_ = *std::move(device);
}

void TrainerFixture::Plan(const JobSpec& spec, MemoryPlan* plan) {
  MemoryBudget budget;
  budget.host_bytes = kHostBytes;
  absl::StatusOr<MemoryPlan> planned = PlanMemory(spec, layout_, device_->kernels(), budget);
  ASSERT_TRUE(planned.ok()) << planned.status();
  ASSERT_TRUE(planned->fits) << planned->Table();
  *plan = *std::move(planned);
}

void TrainerFixture::Start(const JobSpec& spec, const MemoryPlan& plan,
                           const std::string& directory) {
  Stop();
  HostPoolOptions options;
  options.capacity = plan.pool_bytes;
  absl::StatusOr<std::unique_ptr<HostPool>> host_pool = HostPool::Create(options);
  ASSERT_TRUE(host_pool.ok()) << host_pool.status();
  host_pool_ = *std::move(host_pool);
  const absl::Status pinned = device_->PinHost(host_pool_->data(), host_pool_->capacity(), nullptr);
  ASSERT_TRUE(pinned.ok()) << pinned;
  absl::StatusOr<std::unique_ptr<Trainer>> trainer =
      Trainer::Create(spec, plan, device_.get(), &updater_, host_pool_.get());
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  trainer_ = *std::move(trainer);
  const auto weights = HfWeights::Open(directory, layout_);
  ASSERT_TRUE(weights.ok()) << weights.status();
  for (int i = 0; i < layout_.tile_count(); ++i) {
    const absl::Status status = (*weights)->LoadTile(i, trainer_->tiles()[i].front());
    ASSERT_TRUE(status.ok()) << status;
  }
}

void TrainerFixture::Stop() {
  trainer_ = nullptr;
  if (host_pool_ != nullptr) device_->UnpinHost(host_pool_->data());
  host_pool_ = nullptr;
}

}  // namespace megatrain
