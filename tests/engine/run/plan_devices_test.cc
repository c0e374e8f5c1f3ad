// Plans for hosts whose GPUs have unequal memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/engine/run/cuda_job_fixture.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kSmall = int64_t{200} << 10;  // no job fits

EngineBudget HostOf(std::vector<int64_t> device_bytes) {
  EngineBudget budget;
  budget.devices = {"cuda:0", static_cast<int>(device_bytes.size()), std::move(device_bytes)};
  budget.threads = 2;
  budget.memory.SetPool(kGiB, 16 * kGiB);
  // A budget for any device has the least.
  budget.memory.SetDevice(
      *std::min_element(budget.devices.bytes.begin(), budget.devices.bytes.end()));
  return budget;
}

JobSpec JobOn(const std::string& device, int64_t devices = 1) {
  JobSpec spec = Job("plan_devices");
  spec.training.global_batch = 4;
  spec.engine.device = device;
  spec.engine.devices = devices;
  return spec;
}

PlanReport PlanFor(const JobSpec& spec, const EngineBudget& budget,
                   const std::vector<int>& on = {}) {
  const auto plan = PlanTraining(spec, budget, PosixFileSystem(), on);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.value_or(PlanReport());
}

std::vector<std::string> Fitting(const PlanReport& plan) {
  std::vector<std::string> names;
  for (const PlanReport::Place& place : plan.places) {
    if (place.fits) names.push_back(place.name);
  }
  return names;
}

std::vector<std::string> Planned(const PlanReport& plan) {
  std::vector<std::string> names;
  for (const PlanReport::Place& place : plan.places) {
    if (place.planned) names.push_back(place.name);
  }
  return names;
}

TEST(PlanDevicesTest, AJobThatMayHaveAnyGetsTheSmallestOnWhichItFits) {
  const EngineBudget host = HostOf({8 * kGiB, kSmall, 3 * kGiB, 2 * kGiB});
  const PlanReport plan = PlanFor(JobOn("cuda"), host);
  EXPECT_TRUE(plan.fits) << plan.table;
  EXPECT_EQ(plan.device_limit_bytes, 2 * kGiB);
  EXPECT_THAT(Planned(plan), ElementsAre("cuda:3"));
  EXPECT_THAT(Fitting(plan), ElementsAre("cuda:3", "cuda:2", "cuda:0"));
  EXPECT_THAT(plan.table, HasSubstr("devices with unequal memory free\n"
                                    "  cuda:1: 200.00 KiB, does not fit\n"
                                    "  cuda:3: 2.00 GiB, fits, planned for\n"
                                    "  cuda:2: 3.00 GiB, fits\n"
                                    "  cuda:0: 8.00 GiB, fits\n"));
  EXPECT_THAT(PlanJson(plan), HasSubstr("\"places\": [\n    {\n      \"device\": \"cuda:1\",\n"
                                        "      \"free_bytes\": 204800,\n"
                                        "      \"fits\": false,\n"
                                        "      \"planned\": false\n    },"));
}

TEST(PlanDevicesTest, AJobThatNamesADeviceIsPlannedThere) {
  const EngineBudget host = HostOf({kSmall, 8 * kGiB});
  const PlanReport large = PlanFor(JobOn("cuda:1"), host);
  EXPECT_TRUE(large.fits) << large.table;
  EXPECT_EQ(large.device_limit_bytes, 8 * kGiB);
  EXPECT_THAT(Fitting(large), ElementsAre("cuda:1"));
  EXPECT_THAT(large.table, Not(HasSubstr("unequal")));
  const PlanReport small = PlanFor(JobOn("cuda:0"), host);
  EXPECT_FALSE(small.fits);
  EXPECT_THAT(Fitting(small), IsEmpty());
  // A run is measured where it is.
  EXPECT_EQ(PlanFor(JobOn("cuda"), HostOf({2 * kGiB, 8 * kGiB}), {1}).device_limit_bytes, 8 * kGiB);
}

TEST(PlanDevicesTest, TheLeastOfSeveralDevicesCounts) {
  const EngineBudget host = HostOf({8 * kGiB, kSmall, 4 * kGiB});
  const PlanReport two = PlanFor(JobOn("cuda", 2), host);
  EXPECT_TRUE(two.fits) << two.table;
  EXPECT_THAT(Planned(two), ElementsAre("cuda:2", "cuda:0"));
  EXPECT_EQ(two.device_limit_bytes + two.device_reserve_bytes, 4 * kGiB);
  // The third is too small, and no other is there.
  for (const int64_t devices : {3, 0}) {
    const PlanReport three = PlanFor(JobOn("cuda", devices), host);
    EXPECT_FALSE(three.fits) << devices;
    EXPECT_THAT(Fitting(three), IsEmpty()) << devices;
    EXPECT_EQ(three.devices, 3);
  }
}

TEST(PlanDevicesTest, AJobHasItsDevicesPartOfTheMemoryBesideThePool) {
  const EngineBudget host = HostOf(std::vector<int64_t>(4, 8 * kGiB));
  for (const int64_t devices : {1, 2, 4}) {
    const PlanReport plan = PlanFor(JobOn("cuda", devices), host);
    EXPECT_EQ(plan.host_limit_bytes.value_or(0), kGiB + devices * 4 * kGiB) << devices;
  }
}

// Parts of the cpu share its threads. What a thread takes in a device's kernels is thus counted
// once for each, however many devices there are.
TEST(PlanDevicesTest, ThreadsOfTheCpuAreCountedOnceOnAnyNumberOfDevices) {
  EngineBudget host;
  host.threads = 8;
  host.memory.SetPool(kGiB, 16 * kGiB);
  const auto process_bytes = [&](int64_t devices, int64_t threads) {
    JobSpec spec = JobOn("cpu", devices);
    spec.engine.threads = threads;
    const PlanReport plan = PlanFor(spec, host);
    for (const PlanReport::Item& item : plan.host) {
      if (item.name == "process") return item.bytes;
    }
    ADD_FAILURE() << "no item process";
    return int64_t{0};
  };
  const int64_t of_six_threads = process_bytes(1, 8) - process_bytes(1, 2);
  EXPECT_GT(of_six_threads, 0);
  EXPECT_EQ(process_bytes(2, 8) - process_bytes(2, 2), of_six_threads);
}

TEST(PlanDevicesTest, WhatFitsNowhereIsPlannedForTheLargest) {
  const PlanReport plan = PlanFor(JobOn("cuda"), HostOf({kSmall, kSmall / 2}));
  EXPECT_FALSE(plan.fits);
  EXPECT_EQ(plan.device_limit_bytes, kSmall);
  EXPECT_THAT(Planned(plan), ElementsAre("cuda:0"));
}

TEST(PlanDevicesTest, AboutEqualDevicesAreOneGroup) {
  const PlanReport plan = PlanFor(JobOn("cuda"), HostOf({8 * kGiB, 8 * kGiB - (kGiB / 2)}));
  EXPECT_THAT(Planned(plan), ElementsAre("cuda:0"));
  EXPECT_THAT(Fitting(plan), ElementsAre("cuda:0", "cuda:1"));
  EXPECT_EQ(plan.device_limit_bytes, 8 * kGiB - (kGiB / 2));
  EXPECT_THAT(plan.table, Not(HasSubstr("unequal")));
}

}  // namespace
}  // namespace megatrain
