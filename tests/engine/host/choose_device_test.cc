// Which device a name means, over an edge to CUDA that has what each case says.
#include "engine/host/choose_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "engine/device/device_lost.h"
#include "tests/engine/device/cuda/emulated_gpu.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<ChosenDevice> Choose(const std::string& name,
                                    const EmulatedCudaOptions& options = {}) {
  EmulatedGpu gpu(options);
  return ChooseDevice("engine.device", name, gpu.opener());
}

std::string Message(const absl::StatusOr<ChosenDevice>& chosen) {
  return std::string(chosen.status().message());
}

TEST(ChooseDeviceTest, AutoTakesTheFirstGpu) {
  const auto chosen = Choose("auto", {.devices = 2});
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->id, "cuda:0");
  EXPECT_EQ(chosen->gpus.size(), 1);
  EXPECT_EQ(chosen->why_cpu, "");
  EXPECT_EQ(Choose("cuda")->id, "cuda:0");
  EXPECT_EQ(Choose("cuda:1", {.devices = 2})->id, "cuda:1");
}

TEST(ChooseDeviceTest, AutoTakesTheCpuWhereThereIsNothingElseAndSaysWhy) {
  const auto no_driver = Choose("auto", {.driver = 0});
  ASSERT_TRUE(no_driver.ok()) << no_driver.status();
  EXPECT_EQ(no_driver->id, "cpu");
  EXPECT_TRUE(no_driver->gpus.empty());
  EXPECT_THAT(no_driver->why_cpu, HasSubstr("no NVIDIA driver"));
  EXPECT_THAT(Choose("auto", {.devices = 0})->why_cpu, HasSubstr("finds no GPU"));
  EXPECT_NE(ChooseDevice("device", "auto", nullptr)->why_cpu, "");
  const auto asked = Choose("cpu");
  ASSERT_TRUE(asked.ok()) << asked.status();
  EXPECT_EQ(asked->id, "cpu");
  EXPECT_EQ(asked->why_cpu, "") << "nothing was looked for";
}

TEST(ChooseDeviceTest, AGpuThatCannotBeUsedIsNotPassedOver) {
  for (const char* name : {"auto", "cuda", "cuda:0"}) {
    const auto old_driver = Choose(name, {.driver = 12080});
    EXPECT_EQ(old_driver.status().code(), absl::StatusCode::kFailedPrecondition) << name;
    EXPECT_THAT(Message(old_driver), HasSubstr("driver is too old: it is for CUDA 12.8"));
    const auto old_gpu = Choose(name, {.properties = {.name = "Tesla T4", .major = 7, .minor = 5}});
    EXPECT_EQ(old_gpu.status().code(), absl::StatusCode::kFailedPrecondition) << name;
    EXPECT_THAT(Message(old_gpu), HasSubstr("Tesla T4 has compute capability 7.5"));
    EXPECT_THAT(Message(old_gpu), HasSubstr("device: cpu"));
    // Products have no library.
    const auto no_library =
        ChooseDevice("engine.device", name, [](int) -> absl::StatusOr<std::unique_ptr<Device>> {
          return absl::UnavailableError("cuda: libcublasLt is not found");
        });
    EXPECT_EQ(no_library.status().code(), absl::StatusCode::kFailedPrecondition) << name;
    const auto lost =
        ChooseDevice("engine.device", name, [](int) -> absl::StatusOr<std::unique_ptr<Device>> {
          return DeviceLostError("cuda: an illegal address");
        });
    EXPECT_TRUE(IsDeviceLost(lost.status())) << name;
  }
}

TEST(ChooseDeviceTest, WhatIsAskedForByNameIsAnErrorWhereItIsNot) {
  const auto no_driver = Choose("cuda", {.driver = 0});
  EXPECT_EQ(no_driver.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(no_driver), HasSubstr("engine.device: cuda: there is no NVIDIA driver"));
  EXPECT_THAT(Message(Choose("cuda", {.devices = 0})), HasSubstr("CUDA_VISIBLE_DEVICES"));
  const auto second = Choose("cuda:1");
  EXPECT_EQ(second.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(second), HasSubstr("engine.device: cuda:1: there is no such GPU"));
  EXPECT_EQ(Choose("gpu").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ChooseDeviceTest, SeveralAreThoseFromTheNamedOneOn) {
  const auto choose = [](const std::string& name, const GpuChoice& choice, int there = 4) {
    EmulatedGpu gpu({.devices = there});
    return ChooseDevice("engine.device", name, gpu.opener(), choice);
  };
  EXPECT_EQ(choose("auto", {.count = 3})->gpus.size(), 3);
  EXPECT_EQ(choose("auto", {.count = 0})->gpus.size(), 4);
  EXPECT_EQ(choose("cuda:1", {.count = 0})->gpus.size(), 3);
  const auto from_two = choose("cuda:2", {.count = 2});
  ASSERT_TRUE(from_two.ok()) << from_two.status();
  EXPECT_EQ(from_two->id, "cuda:2");
  EXPECT_EQ(from_two->gpus.back()->Uuid(), "GPU-3");
  EXPECT_THAT(Message(choose("cuda:2", {.count = 3})),
              HasSubstr("engine.device: cuda:2 is the first of 3 GPUs (engine.devices): cuda:4: "
                        "there is no such GPU; there are 4"));
  EXPECT_EQ(choose("auto", {.count = 3}, /*there=*/0)->id, "cpu");
}

TEST(ChooseDeviceTest, AFurtherGpuThatCannotBeUsedIsNotPassedOver) {
  // GPU 0 is in order, and those behind it give this error.
  const auto choose = [](int count, const absl::Status& error) {
    EmulatedGpu gpu;
    const GpuOpener opener = gpu.opener();
    return ChooseDevice("engine.device", "auto",
                        [&](int ordinal) -> absl::StatusOr<std::unique_ptr<Device>> {
                          if (ordinal > 0) return error;
                          return opener(ordinal);
                        },
                        {.count = count});
  };
  for (const int count : {0, 2}) {
    EXPECT_EQ(choose(count, absl::UnavailableError("no library")).status().code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(choose(count, absl::ResourceExhaustedError("no memory")).status().code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(IsDeviceLost(choose(count, DeviceLostError("an illegal address")).status()));
  }
  const absl::Status none = absl::InvalidArgumentError("there is no such GPU");
  EXPECT_EQ(choose(2, none).status().code(), absl::StatusCode::kFailedPrecondition)
      << "it may be there again later";
  const auto all = choose(0, none);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->gpus.size(), 1);
}

TEST(ChooseDeviceTest, ProcessesOfAMachineHaveTheGpuOfTheirNumber) {
  const auto choose = [](const std::string& name, int process, int there) {
    EmulatedGpu gpu({.devices = there});
    return ChooseDevice("engine.device", name, gpu.opener(), {.process = process});
  };
  EXPECT_EQ(choose("auto", 3, 4)->id, "cuda:3");
  EXPECT_EQ(choose("cuda:1", 2, 4)->id, "cuda:3");
  // The launcher has given each process its own.
  for (const int process : {1, 3}) EXPECT_EQ(choose("auto", process, 1)->id, "cuda:0");
  EXPECT_THAT(Message(choose("auto", 2, 2)),
              HasSubstr("there are 2, from cuda:0 on, and this is process 2"));
}

}  // namespace
}  // namespace megatrain
