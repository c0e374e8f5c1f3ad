#include "engine/host/engine_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/base/bytes.h"
#include "engine/base/processors.h"
#include "engine/host/session.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

std::unique_ptr<EngineHost> Host(int threads = 0) {
  EngineHostOptions options;
  options.threads = threads;
  auto host = EngineHost::Create(options);
  EXPECT_TRUE(host.ok()) << host.status();
  return *std::move(host);
}

TEST(EngineHostTest, RefusesADeviceThereIsNot) {
  EngineHostOptions options;
  options.device = "cuda:9";
  const absl::Status status = EngineHost::Create(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("device: cuda"));
}

TEST(EngineHostTest, ReservesOnceWithProgress) {
  const auto host = Host();
  std::vector<int64_t> touched;
  ASSERT_TRUE(host->ReservePool(
                      600 * kMiB,
                      [&](int64_t bytes, int64_t capacity) {
                        EXPECT_EQ(capacity, 600 * kMiB);
                        EXPECT_EQ(host->pool_usage().capacity, 0);  // readable meanwhile
                        touched.push_back(bytes);
                      },
                      nullptr)
                  .ok());
  EXPECT_EQ(touched.size(), 3u);
  EXPECT_EQ(host->pool_usage().capacity, 600 * kMiB);
  EXPECT_EQ(host->pool_usage().free_bytes, 600 * kMiB);
  const MemoryBudget budget = host->budget().memory;
  EXPECT_EQ(budget.pool_bytes, 600 * kMiB);
  EXPECT_GT(budget.host_bytes, 600 * kMiB);
  EXPECT_TRUE(budget.device_shares_host);
  EXPECT_EQ(host->ReservePool(1, nullptr, nullptr).code(), absl::StatusCode::kFailedPrecondition);
  const auto pool = host->Pool(5, nullptr, nullptr);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ((*pool)->capacity(), 600 * kMiB);
}

TEST(EngineHostTest, AnAbandonedReservationLeavesNone) {
  const auto host = Host();
  EXPECT_EQ(host->ReservePool(600 * kMiB, nullptr, [] { return true; }).code(),
            absl::StatusCode::kCancelled);
  EXPECT_FALSE(host->has_pool());
  EXPECT_TRUE(host->ReservePool(1 * kMiB, nullptr, [] { return false; }).ok());
}

TEST(EngineHostTest, RefusesMoreThanIsFreeBeforeTouchingIt) {
  const auto host = Host();
  const absl::Status status = host->ReservePool(int64_t{1} << 50, nullptr, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("host_memory"));
  const auto bytes = EngineHost::DefaultPoolBytes();
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_GT(*bytes, 0);
}

TEST(EngineHostTest, ThreadsOfAJobAreCappedByTheHosts) {
  JobSpec::Engine engine;
  const auto three = Host(3), any = Host();
  EXPECT_EQ((*three->OpenSession(engine))->settings.threads, 3);
  EXPECT_EQ((*any->OpenSession(engine))->settings.threads, AvailableProcessors());
  engine.threads = 2;
  EXPECT_EQ((*three->OpenSession(engine))->settings.threads, 2);
  engine.threads = 5;
  EXPECT_EQ((*three->OpenSession(engine))->settings.threads, 3);
  EXPECT_EQ((*any->OpenSession(engine))->settings.threads, 5);
  engine.update_threads = 3;
  EXPECT_EQ(three->OpenSession(engine).status().code(), absl::StatusCode::kInvalidArgument);
  engine.update_threads = 1;
  EXPECT_EQ((*three->OpenSession(engine))->first().compute_pool->threads(), 2);
  engine.device = "cuda";
  EXPECT_THAT(std::string(three->OpenSession(engine).status().message()),
              HasSubstr("engine.device"));
}

TEST(EngineHostTest, SessionsOnDifferentDevicesAreSideBySide) {
  EngineHostOptions options;
  options.device = "cpu";
  options.devices = 3;
  options.threads = 6;
  const auto host = *EngineHost::Create(options);
  JobSpec::Engine engine;
  const auto second = *host->OpenSession(engine, {1});
  EXPECT_EQ(second->settings.threads, 2);
  engine.threads = 5;
  EXPECT_EQ((*host->OpenSession(engine, {2}))->settings.threads, 2) << "no more than its part";
  engine.threads = 0;
  EXPECT_EQ(*host->OpenSession(engine, {1}), second) << "the one on device 2 leaves it alone";
  engine.devices = 2;
  EXPECT_EQ((*host->OpenSession(engine, {0, 1}))->settings.threads, 4);
  engine.devices = 1;
  EXPECT_NE(*host->OpenSession(engine, {1}), second) << "one on both has taken its place";
  engine.devices = 0;
  const auto all = *host->OpenSession(engine);
  EXPECT_EQ(all->ranks.size(), 3);
  EXPECT_EQ(all->settings.threads, 6);

  ASSERT_TRUE(host->ReservePool(int64_t{1} << 20, nullptr, nullptr).ok());
  // Of what was free at the reservation, whatever jobs on other devices have taken since.
  const int64_t beside = host->budget().memory.host_bytes - host->budget().memory.pool_bytes;
  const MemoryBudget part = *host->BudgetNow({2});
  EXPECT_EQ(part.host_bytes - part.pool_bytes, beside / 3);
  EXPECT_EQ(host->BudgetNow({0, 1}, /*without_others=*/true)->host_bytes - part.pool_bytes,
            beside / 3 * 2);
}

TEST(EngineHostTest, JobsOfTheSameSettingsShareASession) {
  const auto host = Host(2);
  JobSpec::Engine engine;
  const auto first = *host->OpenSession(engine);
  EXPECT_EQ(*host->OpenSession(engine), first);
  engine.link_gigabytes_per_second = 1;
  const auto throttled = *host->OpenSession(engine);
  EXPECT_NE(throttled, first);
  EXPECT_EQ(first->first().compute_pool->threads(), 2) << "a job that is paused keeps its own";
}

}  // namespace
}  // namespace megatrain
