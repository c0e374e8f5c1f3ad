// The cpu device's kernels for the suite: memory is the host's.
#ifndef MEGATRAIN_TESTS_ENGINE_DEVICE_CPU_KERNELS_UNDER_TEST_H_
#define MEGATRAIN_TESTS_ENGINE_DEVICE_CPU_KERNELS_UNDER_TEST_H_

#include <cstring>
#include <memory>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/device/cpu/cpu_kernels.h"
#include "engine/device/device.h"
#include "tests/engine/device/kernels_suite.h"

namespace megatrain {

class CpuKernelsUnderTest : public KernelsUnderTest {
 public:
  explicit CpuKernelsUnderTest(int threads) : pool_(threads), kernels_(&pool_) {}
  Kernels& kernels() override { return kernels_; }
  Stream& stream() override { return stream_; }
  void* Allocate(int64_t bytes) override {
    // Exactly as long as asked, so that AddressSanitizer sees a read past the end.
    memory_.push_back(std::make_unique<char[]>(static_cast<size_t>(bytes)));
    return memory_.back().get();
  }
  void CopyIn(void* device, const void* host, int64_t bytes) override {
    std::memcpy(device, host, static_cast<size_t>(bytes));
  }
  void CopyOut(void* host, const void* device, int64_t bytes) override {
    std::memcpy(host, device, static_cast<size_t>(bytes));
  }

 private:
  class NoStream : public Stream {};
  ThreadPool pool_;
  CpuKernels kernels_;
  NoStream stream_;
  std::vector<std::unique_ptr<char[]>> memory_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DEVICE_CPU_KERNELS_UNDER_TEST_H_
