#include "engine/host/engine_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/processors.h"
#include "engine/host/session.h"
#include "engine/memory/page_mapping.h"
#include "engine/memory/system_memory.h"
#include "tests/engine/device/cuda/emulated_gpu.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

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
  const auto pool = host->GetOrReservePool(5, nullptr, nullptr);
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
  // The pool that a first job would reserve is refused as well.
  const absl::Status of_job = host->GetOrReservePool(int64_t{1} << 50, nullptr, nullptr).status();
  EXPECT_EQ(of_job.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(of_job.message()), HasSubstr("host pool: it is to have "));
  EXPECT_FALSE(host->has_pool());
  const auto bytes = EngineHost::DefaultPoolBytes();
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_GT(*bytes, 0);
  // Others change what is free, but hardly by a tenth in between.
  const int64_t set_aside =
      std::max(FreeHugePageBytes(kHugePageBytes), FreeHugePageBytes(kGiantPageBytes));
  EXPECT_LE(*bytes, std::max(*AvailableMemoryBytes() / 10 * 9, set_aside)) << "some stays free";
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

TEST(EngineHostTest, RanksShareTheThreadsAndHaveOneForEachUseAtLeast) {
  const auto threads = [](int devices, int all, int update) {
    SessionSettings settings;
    settings.devices = devices;
    settings.threads = all;
    settings.update_threads = update;
    return std::pair(settings.rank_threads(), settings.rank_update_threads());
  };
  EXPECT_EQ(threads(1, 5, 0), std::pair(5, 0));
  EXPECT_EQ(threads(2, 5, 0), std::pair(2, 0));
  EXPECT_EQ(threads(4, 2, 0), std::pair(1, 0));
  EXPECT_EQ(threads(2, 8, 4), std::pair(4, 2));
  EXPECT_EQ(threads(4, 4, 2), std::pair(2, 1));
  const auto host = Host(5);
  JobSpec::Engine engine;
  engine.devices = 2;
  const auto shared = *host->OpenSession(engine);
  EXPECT_EQ(shared->ranks.at(1).compute_pool->threads(), 2);
  EXPECT_EQ(shared->ranks.at(1).own_update_pool.get(), nullptr);
  engine.threads = engine.update_threads = 4;
  EXPECT_EQ(host->OpenSession(engine).status().code(), absl::StatusCode::kInvalidArgument)
      << "none is left for compute";
  engine.threads = 5;  // two a device
  EXPECT_THAT(std::string(host->OpenSession(engine).status().message()),
              HasSubstr("none of the 5 threads of 2 devices for compute; use at most 2,"));
  engine.threads = 4;
  engine.update_threads = 2;
  const auto apart = *host->OpenSession(engine);
  EXPECT_EQ(apart->ranks.at(1).compute_pool->threads(), 1);
  ASSERT_NE(apart->ranks.at(1).own_update_pool.get(), nullptr);
  EXPECT_EQ(apart->ranks.at(1).own_update_pool->threads(), 1);
}

TEST(EngineHostTest, AJobHasItsDevicesPartOfTheThreads) {
  const HostDevices host{"cuda:2", 4};
  const auto choose = [&host](const std::string& device, int64_t devices, int64_t threads,
                              const std::vector<int>& on = {}) {
    JobSpec::Engine engine;
    engine.device = device;
    engine.devices = devices;
    engine.threads = threads;
    const auto settings = ChooseSession(engine, host, /*threads_max=*/9, on);
    EXPECT_TRUE(settings.ok()) << settings.status();
    return settings.value_or(SessionSettings());
  };
  const SessionSettings named = choose("cuda:3", 2, 0);
  EXPECT_EQ(named.device, "cuda:2");
  EXPECT_EQ(named.devices, 2);
  EXPECT_EQ(named.on, (std::vector<int>{1, 2})) << "those from the one that is named on";
  EXPECT_EQ(named.device_threads, 2);
  EXPECT_EQ(named.threads, 4);
  EXPECT_EQ(choose("auto", 2, 0).on, (std::vector<int>{0, 1}));
  EXPECT_EQ(choose("auto", 2, 0, {0, 3}).on, (std::vector<int>{0, 3}));
  EXPECT_EQ(choose("auto", 2, 3).threads, 3);
  EXPECT_EQ(choose("auto", 2, 5).threads, 4) << "no more than its part";
  // One that has all devices has all threads.
  EXPECT_EQ(choose("auto", 4, 0).threads, 9);
  EXPECT_EQ(choose("auto", 0, 0).on.size(), 4u);
}

TEST(EngineHostTest, TheCpuIsDividedIntoSixtyFourDevicesAtMost) {
  JobSpec::Engine engine;
  engine.devices = 64;
  const auto most = ChooseSession(engine, HostDevices(), /*threads_max=*/2);
  ASSERT_TRUE(most.ok()) << most.status();
  EXPECT_EQ(most->devices, 64);
  engine.devices = 65;
  const absl::Status refused = ChooseSession(engine, HostDevices(), /*threads_max=*/2).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("engine.devices"));
}

TEST(EngineHostTest, ProcessesOfAMachineShareItsMemory) {
  const auto host_bytes = [](int sharers) {
    EngineHostOptions options;
    options.device = "cpu";
    options.sharers = sharers;
    return (*EngineHost::Create(options))->BudgetNow({0})->host_bytes;
  };
  EXPECT_LT(host_bytes(4), host_bytes(1) / 2) << "a quarter, whatever others do meanwhile";
}

// Shows `directory` to the calling thread alone as the kernel's directory of huge pages, for good.
// Returns "" or what failed.
std::string ShowHugePages(const std::string& directory) {
  const auto failed = [](const char* what) {
    return absl::StrCat("its own view of huge pages needs root: ", what, ": ",
                        std::strerror(errno));
  };
  if (::unshare(CLONE_NEWNS) != 0) return failed("unshare");
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount(directory.c_str(), "/sys/kernel/mm/hugepages", nullptr, MS_BIND, nullptr) != 0) {
    return failed("mount");
  }
  return "";
}

TEST(EngineHostTest, ProcessesOfAMachineShareTheHugePagesThatAreSetAside) {
  const std::string directory = testing::TempDir() + "/huge_pages";
  std::filesystem::create_directories(directory + "/hugepages-2048kB");
  constexpr int64_t kSetAside = int64_t{64} << 40;  // more than any machine has free otherwise
  std::ofstream(directory + "/hugepages-2048kB/free_hugepages") << kSetAside / kHugePageBytes;
  std::string why_not;
  std::thread([&] {
    why_not = ShowHugePages(directory);
    if (!why_not.empty()) return;
    for (const int sharers : {1, 4}) {
      EngineHostOptions options;
      options.device = "cpu";
      options.sharers = sharers;
      const auto host = EngineHost::Create(options);
      ASSERT_TRUE(host.ok()) << host.status();
      const auto budget = (*host)->BudgetNow({0});
      ASSERT_TRUE(budget.ok()) << budget.status();
      EXPECT_EQ(budget->pool_bytes, kSetAside / sharers);
      EXPECT_GT(budget->host_bytes, budget->pool_bytes) << "the process lies beside them";
    }
    EXPECT_EQ(EngineHost::DefaultPoolBytes().value_or(0), kSetAside) << "the pool takes all";
  }).join();
  if (!why_not.empty()) GTEST_SKIP() << why_not;
}

TEST(EngineHostTest, AJobMayHaveWhatOthersHaveLeftOfThePool) {
  const auto host = Host();
  ASSERT_TRUE(host->ReservePool(4 * kMiB, nullptr, nullptr).ok());
  const auto pool = host->GetOrReservePool(0, nullptr, nullptr);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const auto lease = (*pool)->Lease(HostKind::kStash, 3 * kMiB);
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_EQ(host->BudgetNow({0})->pool_bytes, kMiB);
  EXPECT_EQ(host->BudgetNow({0}, /*without_others=*/true)->pool_bytes, 4 * kMiB);
  EXPECT_EQ(host->budget().memory.pool_bytes, 4 * kMiB);
  EXPECT_EQ(host->pool_usage().free_bytes, kMiB);
  EXPECT_EQ(host->pool_usage().bytes[static_cast<int>(HostKind::kStash)], 3 * kMiB);
  EXPECT_EQ(host->pool_usage().bytes[static_cast<int>(HostKind::kTiles)], 0);
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
  EXPECT_EQ(host->DescribeDevice(1), "cpu, 2 threads");
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

// What was free besides it was not measured at its reservation, and is not divided.
TEST(EngineHostTest, BesideThePoolOfAFirstJobIsAllThatIsFree) {
  EngineHostOptions options;
  options.device = "cpu";
  options.devices = 8;
  const auto host = EngineHost::Create(options);
  ASSERT_TRUE(host.ok()) << host.status();
  ASSERT_TRUE((*host)->GetOrReservePool(kMiB, nullptr, nullptr).ok());
  const auto budget = (*host)->BudgetNow({0});
  ASSERT_TRUE(budget.ok()) << budget.status();
  EXPECT_EQ(budget->pool_bytes, kMiB);
  EXPECT_GT(budget->host_bytes - budget->pool_bytes, *AvailableMemoryBytes() / 3);
}

TEST(EngineHostTest, DescribesTheCpuAndWhyItWasTaken) {
  EngineHostOptions options;
  options.threads = 3;
  const auto host = EngineHost::Create(options);
  ASSERT_TRUE(host.ok()) << host.status();
  ASSERT_NE((*host)->why_cpu(), "");
  EXPECT_EQ((*host)->DescribeDevice(), absl::StrCat("cpu, 3 threads (", (*host)->why_cpu(), ")"));
  EXPECT_EQ((*host)->DeviceMemoryBytes(0), 0);
  options.device = "cpu";
  const auto asked = EngineHost::Create(options);
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ((*asked)->DescribeDevice(), "cpu, 3 threads");
}

// Returns how a host of emulated GPUs describes its pool. The nodes are beyond what a machine has:
// a pool that was to be placed on one says so.
std::string PoolOfGpus(const std::vector<int>& numa_nodes, int devices, int process) {
  EmulatedGpu gpu({.devices = static_cast<int>(numa_nodes.size()), .numa_nodes = numa_nodes});
  EngineHostOptions options;
  options.device = "cuda";
  options.open_gpu = gpu.opener();
  options.devices = devices;
  options.process = process;
  const auto host = EngineHost::Create(options);
  EXPECT_TRUE(host.ok()) << host.status();
  EXPECT_TRUE((*host)->ReservePool(4 * kMiB, nullptr, nullptr).ok());
  return (*host)->DescribePool();
}

TEST(EngineHostTest, APoolIsPlacedOnTheNodeOfItsGpus) {
  EXPECT_THAT(PoolOfGpus({1000, 1001}, /*devices=*/1, /*process=*/0),
              HasSubstr(", not placed on NUMA node 1000 ("));
  EXPECT_THAT(PoolOfGpus({1001, 1001}, /*devices=*/2, /*process=*/0),
              HasSubstr(", not placed on NUMA node 1001 ("));
  EXPECT_THAT(PoolOfGpus({1001, 1000, 1001}, /*devices=*/3, /*process=*/0),
              HasSubstr(", not placed on NUMA nodes 1000 and 1001 ("));
  EXPECT_THAT(PoolOfGpus({1002, 1000, 1001}, /*devices=*/3, /*process=*/0),
              HasSubstr(", not placed on NUMA nodes 1000 and 1001 and 1002 ("));
  EXPECT_THAT(PoolOfGpus({1000, -1}, /*devices=*/2, /*process=*/0), Not(HasSubstr("placed")));
  EXPECT_THAT(PoolOfGpus({-1}, /*devices=*/1, /*process=*/0), Not(HasSubstr("placed")));
}

TEST(EngineHostTest, EachProcessOfAJobPlacesItsPoolOnTheNodeOfItsGpu) {
  for (const int process : {0, 1}) {
    EXPECT_THAT(PoolOfGpus({1000, 1001}, /*devices=*/1, process),
                HasSubstr(absl::StrCat(", not placed on NUMA node ", 1000 + process, " (")));
  }
}

TEST(EngineHostTest, APoolThatCannotBeUsedIsUnpinned) {
  EmulatedGpu gpu;
  EngineHostOptions options;
  options.device = "cuda";
  options.open_gpu = gpu.opener();
  const auto host = EngineHost::Create(options);
  ASSERT_TRUE(host.ok()) << host.status();
  const int64_t of_the_device = gpu.edge().registered_bytes();
  gpu.edge().Fail("MemoryInfo", /*error=*/2);
  EXPECT_FALSE((*host)->ReservePool(4 * kMiB, nullptr, nullptr).ok());
  EXPECT_EQ(gpu.edge().registered_bytes(), of_the_device);
  EXPECT_FALSE((*host)->has_pool());
}

// Returns the number of the processor to which the other thread of a pool of two is bound, or -1
// if it may use several.
int ProcessorOfWorker(ThreadPool& pool) {
  std::atomic<int> inside = 0, processor = -1;
  const std::thread::id caller = std::this_thread::get_id();
  pool.ParallelFor(2, [&](int64_t) {
    ++inside;
    while (inside < 2) std::this_thread::yield();  // each thread has one of the blocks
    if (std::this_thread::get_id() == caller) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) == 1) {
      processor = sched_getcpu();
    }
  });
  return processor;
}

// Processes that may use the same processors would otherwise all keep to the first of them.
TEST(EngineHostTest, ThreadsOfAGpuKeepToProcessorsFromTheHostsFirst) {
  const std::vector<Processor> processors = AllowedProcessors();
  if (processors.size() < 2) GTEST_SKIP() << "this machine has one processor";
  for (const int first : {0, 1}) {
    EmulatedGpu gpu;
    EngineHostOptions options;
    options.device = "cuda";
    options.open_gpu = gpu.opener();
    options.threads = 2;
    options.first_processor = first;
    const auto host = EngineHost::Create(options);
    ASSERT_TRUE(host.ok()) << host.status();
    const auto session = (*host)->OpenSession(JobSpec::Engine());
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_EQ(ProcessorOfWorker(*(*session)->first().compute_pool),
              processors[(static_cast<size_t>(first) + 1) % processors.size()].number);
  }
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
