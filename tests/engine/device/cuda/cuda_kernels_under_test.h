// The cuda device's kernels for the suite, over any edge to CUDA.
#ifndef MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_CUDA_KERNELS_UNDER_TEST_H_
#define MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_CUDA_KERNELS_UNDER_TEST_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/device/cuda/cuda_kernels.h"
#include "tests/engine/device/kernels_under_test.h"

namespace megatrain {

class CudaKernelsUnderTest : public KernelsUnderTest {
 public:
  explicit CudaKernelsUnderTest(std::shared_ptr<CudaApi> api, const cuda::FastPaths& paths = {})
      : api_(std::move(api)), kernels_(api_.get(), 0, paths) {
    void *stream = nullptr, *workspace = nullptr;
    Check(api_->SetDevice(0));
    Check(api_->StreamCreate(&stream));
    Check(api_->Malloc(CudaStream::WorkspaceBytes(), &workspace));
    stream_ = std::make_unique<CudaStream>(api_.get(), 0, stream, workspace);
    Check(api_->EventCreate(&event_));
  }
  ~CudaKernelsUnderTest() override {
    for (void* memory : memory_) Check(api_->Free(memory));
    Check(api_->EventDestroy(event_));
  }

  Kernels& kernels() override { return kernels_; }
  Stream& stream() override { return *stream_; }
  void* Allocate(int64_t bytes) override {
    void* memory = nullptr;
    Check(api_->Malloc(std::max(bytes, int64_t{1}), &memory));
    memory_.push_back(memory);
    return memory;
  }
  void CopyIn(void* device, const void* host, int64_t bytes) override {
    Pinned pinned(*this, bytes);
    std::memcpy(pinned.memory, host, static_cast<size_t>(bytes));
    Check(api_->CopyToDevice(stream_->get(), device, pinned.memory, bytes));
    Finish();
  }
  void CopyOut(void* host, const void* device, int64_t bytes) override {
    Pinned pinned(*this, bytes);
    Check(api_->CopyToHost(stream_->get(), pinned.memory, device, bytes));
    Finish();
    std::memcpy(host, pinned.memory, static_cast<size_t>(bytes));
  }

 private:
  // As in the engine, copies are from and to pinned memory only.
  struct Pinned {
    Pinned(CudaKernelsUnderTest& test, int64_t bytes)
        : test(test), bytes((bytes + 4095) / 4096 * 4096 + 4096) {
      memory = std::aligned_alloc(4096, static_cast<size_t>(this->bytes));
      test.Check(test.api_->HostRegister(memory, this->bytes));
    }
    ~Pinned() {
      test.Check(test.api_->HostUnregister(memory));
      std::free(memory);
    }
    CudaKernelsUnderTest& test;
    const int64_t bytes;
    void* memory = nullptr;
  };

  void Check(int error) { EXPECT_EQ(error, 0) << api_->Describe(error); }
  void Finish() {
    Check(api_->EventRecord(event_, stream_->get()));
    Check(api_->EventSynchronize(event_));
  }

  const std::shared_ptr<CudaApi> api_;
  CudaKernels kernels_;
  std::unique_ptr<CudaStream> stream_;
  void* event_ = nullptr;
  std::vector<void*> memory_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_CUDA_KERNELS_UNDER_TEST_H_
