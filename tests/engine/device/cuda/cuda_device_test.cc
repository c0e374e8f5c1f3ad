// The cuda device over an edge that refuses, fails and forbids.
#include "engine/device/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <numeric>
#include <vector>

#include "engine/device/cuda/cuda_status.h"
#include "engine/device/cuda/pinned_ranges.h"
#include "engine/device/device_lost.h"
#include "tests/engine/device/cuda/emulated_cuda.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

constexpr int kIllegalAddress = 700;

absl::StatusOr<std::unique_ptr<Device>> Open(const EmulatedCudaOptions& options = {},
                                             int ordinal = 0) {
  return CreateCudaDevice(std::make_unique<EmulatedCuda>(options), ordinal);
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(CudaDeviceTest, SaysWhatItIs) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->Describe(),
            "cuda:0, Emulated, 4.00 GiB, compute capability 9.0, driver for CUDA 13.0, "
            "cuBLASLt 13.1.0 (plain loops), no cuDNN (it is not emulated)");
}

TEST(CudaDeviceTest, WhoseAttentionItIsDecidesTheArithmetic) {
  constexpr char kMachine[] =
      "cuda, Emulated, compute capability 9.0, 0 multiprocessors, cuBLASLt 13.1.0, ";
  const auto with = Open({.cudnn = true}), without = Open();
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_EQ((*with)->Arithmetic(AttentionChoice::kAuto), std::string(kMachine) + "cuDNN 9.19.0");
  EXPECT_EQ((*with)->Arithmetic(AttentionChoice::kLibrary), std::string(kMachine) + "cuDNN 9.19.0");
  for (const auto& arithmetic : {(*with)->Arithmetic(AttentionChoice::kOwn),
                                 (*without)->Arithmetic(AttentionChoice::kAuto)}) {
    EXPECT_EQ(arithmetic, std::string(kMachine) + "no cuDNN");
  }
  for (AttentionChoice choice : {AttentionChoice::kAuto, AttentionChoice::kOwn}) {
    EXPECT_TRUE((*without)->CheckAttention(choice).ok());
  }
  EXPECT_TRUE((*with)->CheckAttention(AttentionChoice::kLibrary).ok());
  const absl::Status none = (*without)->CheckAttention(AttentionChoice::kLibrary);
  EXPECT_EQ(none.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(none), HasSubstr("there is no cuDNN: it is not emulated"));
}

class CudaSwitchesTest : public testing::Test {
 protected:
  void TearDown() override {
    for (const char* variable : {"MEGATRAIN_CUDNN", "MEGATRAIN_TENSOR_CORE_ATTENTION",
                                 "MEGATRAIN_VECTOR_LOADS", "MEGATRAIN_SPLIT_SUMS"}) {
      unsetenv(variable);
    }
  }
};

TEST_F(CudaSwitchesTest, TheEnvironmentSetsFastPathsAside) {
  setenv("MEGATRAIN_CUDNN", "off", 1);
  setenv("MEGATRAIN_SPLIT_SUMS", "off", 1);
  const auto device = Open({.cudnn = true});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_THAT((*device)->Describe(),
              HasSubstr("no cuDNN (MEGATRAIN_CUDNN=off), without split sums"));
  EXPECT_THAT((*device)->Arithmetic(AttentionChoice::kAuto),
              HasSubstr("no cuDNN, without split sums"));
  EXPECT_THAT(Message((*device)->CheckAttention(AttentionChoice::kLibrary)),
              HasSubstr("MEGATRAIN_CUDNN=off"));
  setenv("MEGATRAIN_TENSOR_CORE_ATTENTION", "off", 1);
  setenv("MEGATRAIN_VECTOR_LOADS", "off", 1);
  const auto plain = Open();
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_THAT((*plain)->Describe(),
              HasSubstr("without tensor-core attention, vector loads, split sums"));
}

TEST_F(CudaSwitchesTest, AnotherValueIsRefusedByName) {
  setenv("MEGATRAIN_VECTOR_LOADS", "no", 1);
  const absl::Status status = Open().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("MEGATRAIN_VECTOR_LOADS: expects off, got 'no'"));
}

TEST(CudaDeviceTest, NothingToUseIsNotFound) {
  const absl::Status no_driver = Open({.driver = 0}).status();
  EXPECT_EQ(no_driver.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(no_driver), HasSubstr("no NVIDIA driver"));
  const absl::Status no_gpu = Open({.devices = 0}).status();
  EXPECT_EQ(no_gpu.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(no_gpu), HasSubstr("finds no GPU"));
}

TEST(CudaDeviceTest, WhatHasToBeSetRightIsSaid) {
  const absl::Status old_driver = Open({.driver = 12080}).status();
  EXPECT_EQ(old_driver.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(old_driver),
              HasSubstr("too old: it is for CUDA 12.8, this program for 13.0"));
  EXPECT_TRUE(Open({.driver = 13000, .runtime = 13010}).ok()) << "a minor version more";
  auto cannot_tell = std::make_unique<EmulatedCuda>();
  cannot_tell->Fail("DeviceCount", kCudaInsufficientDriver);
  const absl::Status too_old = CreateCudaDevice(std::move(cannot_tell), 0).status();
  EXPECT_EQ(too_old.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(too_old), HasSubstr("update the driver"));
  const absl::Status old_gpu =
      Open({.properties = {.name = "Tesla T4", .major = 7, .minor = 5}}).status();
  EXPECT_EQ(old_gpu.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(old_gpu), HasSubstr("Tesla T4 has compute capability 7.5; 8.0"));
  const absl::Status no_such = Open({.devices = 2}, 2).status();
  EXPECT_EQ(no_such.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(no_such), HasSubstr("cuda:2: there is no such GPU; there are 2"));
  auto api = std::make_unique<EmulatedCuda>();
  api->Fail("LoadLibraries", 1);
  EXPECT_EQ(CreateCudaDevice(std::move(api), 0).status().code(), absl::StatusCode::kUnavailable);
}

// Everything is used once before the arena is cut, and what that took is kept free again for what
// is loaded later.
TEST(CudaDeviceTest, WhatIsLoadedAtTheFirstUseIsCounted) {
  constexpr int64_t kGibibyte = int64_t{1} << 30;
  const auto lazy = Open({.lazy_bytes = kGibibyte});
  ASSERT_TRUE(lazy.ok()) << lazy.status();
  EXPECT_EQ(*(*lazy)->FreeBytes(), 3 * kGibibyte);
  EXPECT_EQ((*lazy)->ReserveBytes(), kGibibyte);
  const auto little = Open({.lazy_bytes = 1 << 20});
  ASSERT_TRUE(little.ok()) << little.status();
  EXPECT_EQ((*little)->ReserveBytes(), kGibibyte / 2);
}

// The library may be there and refuse what it is warmed up with.
TEST(CudaDeviceTest, ALibraryThatTakesNoCallIsWarmedUpByOurKernels) {
  const auto device = Open({.cudnn = true, .lazy_bytes = 1 << 20});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_TRUE((*device)->CheckAttention(AttentionChoice::kLibrary).ok());
}

TEST(CudaDeviceTest, WhatCannotBeCountedIsReckonedWithMore) {
  auto api = std::make_unique<EmulatedCuda>(EmulatedCudaOptions{.lazy_bytes = 1 << 20});
  api->Fail("Product", kProductFailed + 13);
  const auto device = CreateCudaDevice(std::move(api), 0);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->ReserveBytes(), int64_t{1536} << 20);
  EXPECT_THAT((*device)->Describe(), HasSubstr("warming up failed (cuda: cublasLtMatmul"));
  api = std::make_unique<EmulatedCuda>(EmulatedCudaOptions{.lazy_bytes = 1 << 20});
  api->Fail("Product", kIllegalAddress);
  const absl::Status lost = CreateCudaDevice(std::move(api), 0).status();
  EXPECT_TRUE(IsDeviceLost(lost)) << lost;
}

TEST(CudaDeviceTest, AnArenaThatDoesNotFitNamesTheBytes) {
  const auto device = Open({.memory_bytes = 1 << 20});
  ASSERT_TRUE(device.ok()) << device.status();
  const absl::Status status = (*device)->Allocate(int64_t{1} << 30).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("1,073,741,824 bytes"));
  EXPECT_THAT(Message(status), HasSubstr("1,048,576 bytes"));
}

TEST(CudaDeviceTest, AStreamWithoutMemoryIsNotHalfMade) {
  auto api = std::make_unique<EmulatedCuda>();
  EmulatedCuda* const edge = api.get();
  const auto device = CreateCudaDevice(std::move(api), 0);
  ASSERT_TRUE(device.ok()) << device.status();
  edge->Fail("StreamCreate", 2);
  const absl::Status status = (*device)->CreateStream(StreamUse::kCompute).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(edge->allocated_bytes(), 0);
}

TEST(CudaDeviceTest, UnpinnedMemoryIsNeverCopied) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  const auto stream = *(*device)->CreateStream(StreamUse::kCopy);
  const auto memory = *(*device)->Allocate(4096);
  std::vector<char> host(4096);
  EXPECT_EQ((*device)->CopyToDevice(*stream, memory->data(), host.data(), 4096).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*device)->CopyToHost(*stream, host.data(), memory->data(), 4096).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(CudaDeviceTest, AnyHostMemoryCanBeUploadedAndDownloaded) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  const auto stream = *(*device)->CreateStream(StreamUse::kCopy);
  std::vector<int> sent(700'001), received(sent.size());
  std::iota(sent.begin(), sent.end(), 1);
  const int64_t bytes = static_cast<int64_t>(sent.size() * sizeof(int));
  const auto memory = *(*device)->Allocate(bytes);
  ASSERT_TRUE((*device)->Upload(*stream, memory->data(), sent.data(), bytes).ok());
  ASSERT_TRUE((*device)->Download(*stream, received.data(), memory->data(), bytes).ok());
  EXPECT_EQ(sent, received);
}

// As experts' rows are, in the middle of a step.
TEST(CudaDeviceTest, ADownloadIsOfWhatTheStreamHasComputed) {
  const auto device = Open();
  ASSERT_TRUE(device.ok()) << device.status();
  const auto stream = *(*device)->CreateStream(StreamUse::kCompute);
  constexpr int kTokens = 500, kExperts = 4;
  std::vector<int32_t> choice(kTokens), offsets(kExperts + 1);
  for (int t = 0; t < kTokens; ++t) choice[t] = t % 3;  // none to the last
  const auto memory = *(*device)->Allocate(4 * 4096);
  int32_t* const at = static_cast<int32_t*>(memory->data());
  ASSERT_TRUE((*device)->Upload(*stream, at, choice.data(), kTokens * 4).ok());
  ASSERT_TRUE((*device)
                  ->kernels()
                  .SortAssignments(*stream, {.tokens = kTokens,
                                             .experts = kExperts,
                                             .chosen = 1,
                                             .choice = at,
                                             .offsets = at + 1024,
                                             .assignments = at + 2048,
                                             .rows = at + 3072})
                  .ok());
  ASSERT_TRUE((*device)->Download(*stream, offsets.data(), at + 1024, (kExperts + 1) * 4).ok());
  EXPECT_EQ(offsets, (std::vector<int32_t>{0, 167, 334, 500, 500}));
}

TEST(CudaDeviceTest, ADeviceInHostMemoryHasNoneOfItsOwn) {
  const auto device = Open({.properties = {.name = "GB10", .major = 12, .integrated = true}});
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ(*(*device)->FreeBytes(), std::nullopt);
  EXPECT_THAT((*device)->Describe(), HasSubstr("in host memory"));
  EXPECT_EQ((*device)->MemoryBytes(), 0);
  const auto lazy = Open(
      {.properties = {.name = "GB10", .major = 12, .integrated = true}, .lazy_bytes = 1 << 20});
  ASSERT_TRUE(lazy.ok()) << lazy.status();
  EXPECT_EQ((*lazy)->ReserveBytes(), int64_t{512} << 20);
  const auto discrete = Open({.properties = {.name = "H200", .major = 9, .numa_node = 1}});
  EXPECT_EQ(*(*discrete)->FreeBytes(), int64_t{4} << 30);
  EXPECT_EQ((*discrete)->MemoryBytes(), int64_t{4} << 30);
  EXPECT_EQ((*discrete)->numa_node(), 1);
}

TEST(CudaDeviceTest, AnEventIsDoneWhenTheWorkBeforeItIs) {
  auto api = std::make_unique<EmulatedCuda>();
  EmulatedCuda* const edge = api.get();
  const auto device = CreateCudaDevice(std::move(api), 0);
  ASSERT_TRUE(device.ok()) << device.status();
  const auto stream = *(*device)->CreateStream(StreamUse::kCopy);
  const auto event = *(*device)->CreateEvent();
  std::promise<void> work;
  static_cast<cuda::EmulatedStream*>(stream->native_handle())->Enqueue([&work] {
    work.get_future().wait();
  });
  ASSERT_TRUE((*device)->Record(*stream, *event).ok());
  EXPECT_EQ(*(*device)->Done(*event), false);
  work.set_value();
  ASSERT_TRUE((*device)->Synchronize(*event).ok());
  EXPECT_EQ(*(*device)->Done(*event), true);
  edge->Fail("EventQuery", kIllegalAddress);
  EXPECT_TRUE(IsDeviceLost((*device)->Done(*event).status()));
}

TEST(CudaDeviceTest, AnErrorThatStaysIsADeviceLost) {
  auto api = std::make_unique<EmulatedCuda>();
  EmulatedCuda* const edge = api.get();
  const auto device = CreateCudaDevice(std::move(api), 0);
  ASSERT_TRUE(device.ok()) << device.status();
  const auto stream = *(*device)->CreateStream(StreamUse::kCopy);
  const auto event = *(*device)->CreateEvent();
  ASSERT_TRUE((*device)->Record(*stream, *event).ok());
  edge->Fail("EventSynchronize", 600);
  const absl::Status passing = (*device)->Synchronize(*event);
  EXPECT_FALSE(passing.ok());
  EXPECT_FALSE(IsDeviceLost(passing)) << passing;
  edge->Fail("EventSynchronize", kIllegalAddress, 0, /*sticky=*/true);
  const absl::Status lost = (*device)->Synchronize(*event);
  EXPECT_TRUE(IsDeviceLost(lost)) << lost;
  EXPECT_THAT(Message(lost), HasSubstr("cudaEventSynchronize: emulated error 700"));
  EXPECT_TRUE(IsDeviceLost((*device)->Record(*stream, *event)));
}

TEST(CudaDeviceTest, ErrorsThatStayAreKnownByTheirNumbers) {
  const EmulatedCuda edge;
  for (const int error :
       {214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999}) {
    EXPECT_TRUE(IsDeviceLost(CudaStatus(edge, error, "a call"))) << error;
  }
  for (const int error :
       {1, 2, 9, 98, 400, 600, 712, 720, 801, kProductFailed + 14, kAttentionFailed + 8}) {
    EXPECT_FALSE(IsDeviceLost(CudaStatus(edge, error, "a call"))) << error;
  }
}

class PinnedRangesTest : public testing::Test {
 protected:
  static constexpr int64_t kPage = 4096;
  PinnedRangesTest() : memory_(static_cast<char*>(std::aligned_alloc(kPage, 10 * kPage))) {}
  ~PinnedRangesTest() override { std::free(memory_); }

  EmulatedCuda cuda_;
  PinnedRanges ranges_{&cuda_, 4 * kPage};
  char* const memory_;
};

TEST_F(PinnedRangesTest, CopiesAreCutWherePiecesEnd) {
  std::vector<int64_t> done;
  const auto note_done = [&](int64_t bytes) {
    done.push_back(bytes);
    return absl::OkStatus();
  };
  ASSERT_TRUE(ranges_.Pin(memory_, 10 * kPage, note_done).ok());
  EXPECT_EQ(done, (std::vector<int64_t>{4 * kPage, 8 * kPage, 10 * kPage}));
  EXPECT_EQ(cuda_.registered_bytes(), 10 * kPage);
  std::vector<std::pair<int64_t, int64_t>> parts;
  const auto note = [&](int64_t at, int64_t bytes) {
    parts.emplace_back(at, bytes);
    return absl::OkStatus();
  };
  ASSERT_TRUE(ranges_.ForEachPiece(memory_ + 100, 9 * kPage, note).ok());
  EXPECT_EQ(parts, (std::vector<std::pair<int64_t, int64_t>>{{0, 4 * kPage - 100},
                                                             {4 * kPage - 100, 4 * kPage},
                                                             {8 * kPage - 100, kPage + 100}}));
  EXPECT_FALSE(ranges_.ForEachPiece(memory_ + 100, 10 * kPage, note).ok());
  EXPECT_FALSE(ranges_.ForEachPiece(memory_ - 1, 1, note).ok());
  ranges_.Unpin(memory_);
  EXPECT_EQ(cuda_.registered_bytes(), 0);
  EXPECT_FALSE(ranges_.ForEachPiece(memory_, 1, note).ok());
}

TEST_F(PinnedRangesTest, ARefusalLeavesNothingPinnedAndNamesTheLimit) {
  cuda_.Fail("HostRegister", 2, 2);
  const absl::Status status = ranges_.Pin(memory_, 10 * kPage, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("32,768 bytes"));
  EXPECT_THAT(Message(status), HasSubstr("RLIMIT_MEMLOCK"));
  EXPECT_THAT(Message(status), HasSubstr("LimitMEMLOCK=infinity"));
  EXPECT_EQ(cuda_.registered_bytes(), 0);
}

TEST_F(PinnedRangesTest, ADeviceThatIsLostIsToldAsOne) {
  cuda_.Fail("HostRegister", kIllegalAddress, /*after=*/1);
  const absl::Status status = ranges_.Pin(memory_, 10 * kPage, nullptr);
  EXPECT_TRUE(IsDeviceLost(status)) << status;
  EXPECT_THAT(Message(status), HasSubstr("16,384 bytes"));
  EXPECT_EQ(cuda_.registered_bytes(), 0);
}

TEST_F(PinnedRangesTest, PinningIsAbandonedWhenToldSo) {
  const auto enough = [](int64_t done) {
    return done > 4 * kPage ? absl::CancelledError("enough") : absl::OkStatus();
  };
  EXPECT_EQ(ranges_.Pin(memory_, 10 * kPage, enough).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(cuda_.registered_bytes(), 0);
}

}  // namespace
}  // namespace megatrain
