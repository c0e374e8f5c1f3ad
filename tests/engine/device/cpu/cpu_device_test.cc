// The cpu device beside its kernels: what it says of itself, its memory, its copies and its clock.
#include "engine/device/cpu/cpu_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/device/device.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(CpuDeviceTest, SaysWhatItIs) {
  ThreadPool one(1), three(3);
  EXPECT_EQ(CreateCpuDevice(&one, {})->Describe(), "cpu, 1 thread");
  const std::unique_ptr<Device> device = CreateCpuDevice(&three, {});
  EXPECT_EQ(device->Describe(), "cpu, 3 threads");
  EXPECT_THAT(device->Arithmetic(AttentionChoice::kAuto), StartsWith("cpu, oneDNN "));
  EXPECT_EQ(device->Uuid(), "");
  EXPECT_EQ(device->numa_node(), -1);
  EXPECT_TRUE(device->KernelsReadHost());
  // It has no memory of its own.
  EXPECT_EQ(device->MemoryBytes(), 0);
  EXPECT_EQ(device->ReserveBytes(), 0);
  const auto free = device->FreeBytes();
  ASSERT_TRUE(free.ok()) << free.status();
  EXPECT_FALSE(free->has_value());
  // Nor has it a library for attention.
  EXPECT_TRUE(device->CheckAttention(AttentionChoice::kAuto).ok());
  EXPECT_TRUE(device->CheckAttention(AttentionChoice::kOwn).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(device->CheckAttention(AttentionChoice::kLibrary)));
}

TEST(CpuDeviceTest, CopiesToItsMemoryAndBack) {
  ThreadPool pool(1);
  const std::unique_ptr<Device> device = CreateCpuDevice(&pool, {});
  const auto stream = device->CreateStream(StreamUse::kCompute);
  ASSERT_TRUE(stream.ok()) << stream.status();
  constexpr int64_t kBytes = 5000;
  const auto memory = device->Allocate(kBytes);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ((*memory)->bytes(), kBytes);
  char* const data = static_cast<char*>((*memory)->data());
  std::memset(data, 0, kBytes);
  // The last byte is not copied.
  const std::string first(kBytes, 'a'), second(kBytes, 'b');
  std::string back(kBytes, '-');
  ASSERT_TRUE(device->CopyToDevice(**stream, data, first.data(), kBytes - 1).ok());
  ASSERT_TRUE(device->CopyToHost(**stream, back.data(), data, kBytes - 1).ok());
  EXPECT_EQ(back, std::string(kBytes - 1, 'a') + "-");
  ASSERT_TRUE(device->Upload(**stream, data, second.data(), kBytes - 1).ok());
  ASSERT_TRUE(device->Download(**stream, back.data(), data, kBytes - 1).ok());
  EXPECT_EQ(back, std::string(kBytes - 1, 'b') + "-");
  EXPECT_EQ(data[kBytes - 1], 0);
}

TEST(CpuDeviceTest, NamesTheBytesThatItCannotAllocate) {
  ThreadPool pool(1);
  const auto memory = CreateCpuDevice(&pool, {})->Allocate(int64_t{1} << 62);
  EXPECT_TRUE(absl::IsResourceExhausted(memory.status())) << memory.status();
  EXPECT_THAT(std::string(memory.status().message()), HasSubstr("4,611,686,018,427,387,904 bytes"));
}

TEST(CpuDeviceTest, PinningTellsItsProgressAndStopsWhenTold) {
  ThreadPool pool(1);
  const std::unique_ptr<Device> device = CreateCpuDevice(&pool, {});
  std::vector<char> host(4096);
  EXPECT_TRUE(device->PinHost(host.data(), 4096, nullptr).ok());
  int64_t done = 0;
  absl::Status answer;
  const PinProgress progress = [&](int64_t bytes) {
    done = bytes;
    return answer;
  };
  EXPECT_TRUE(device->PinHost(host.data(), 4096, progress).ok());
  EXPECT_EQ(done, 4096);
  answer = absl::CancelledError("enough");
  EXPECT_EQ(device->PinHost(host.data(), 4096, progress), answer);
}

// The link's time is a least one: a busy machine takes longer.
TEST(CpuDeviceTest, CopiesOverASlowLinkTakeTheirTime) {
  ThreadPool pool(1);
  const std::unique_ptr<Device> device =
      CreateCpuDevice(&pool, {.link_gigabytes_per_second = 0.25});
  const auto stream = device->CreateStream(StreamUse::kCopy);
  auto start = device->CreateEvent(), end = device->CreateEvent();
  ASSERT_TRUE(stream.ok() && start.ok() && end.ok());
  const std::vector<char> from(500'000, 'x');
  std::vector<char> to(from.size());
  for (const bool to_host : {false, true}) {
    ASSERT_TRUE(device->Record(**stream, **start).ok());
    ASSERT_TRUE((to_host ? device->CopyToHost(**stream, to.data(), from.data(), 500'000)
                         : device->CopyToDevice(**stream, to.data(), from.data(), 500'000))
                    .ok());
    ASSERT_TRUE(device->Record(**stream, **end).ok());
    EXPECT_TRUE(device->Wait(**stream, **end).ok());
    EXPECT_TRUE(device->Synchronize(**end).ok());
    EXPECT_TRUE(*device->Done(**end));
    const double seconds = *device->ElapsedSeconds(**start, **end);
    EXPECT_GE(seconds, 0.00199) << "of 2 ms";
    EXPECT_DOUBLE_EQ(*device->ElapsedSeconds(**end, **start), -seconds);
  }
  EXPECT_EQ(to, from);
}

}  // namespace
}  // namespace megatrain
