// CUDA as tests of jobs look at it: what is allocated of a GPU is counted, and its copies to the
// host can be made to fail. All else goes to the edge that the program is linked with.
//
// Thread safety: all methods may be called from any thread.
#ifndef MEGATRAIN_TESTS_GPU_WATCHED_CUDA_H_
#define MEGATRAIN_TESTS_GPU_WATCHED_CUDA_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/device/cuda/libraries/cuda_api.h"

namespace megatrain {

class WatchedCuda : public CudaApi {
 public:
  explicit WatchedCuda(std::unique_ptr<CudaApi> cuda) : cuda_(std::move(cuda)) {}

  int64_t allocated_bytes() const {
    std::lock_guard<std::mutex> lock(mutex_);
    int64_t bytes = 0;
    for (const auto& [start, size] : allocated_) bytes += size;
    return bytes;
  }
  // CopyToHost gives kCudaInvalidValue from the `after`-th call on (0: the next).
  void FailCopiesToHost(int after) {
    good_copies_ = after;
    fails_ = true;
  }
  void Heal() { fails_ = false; }

  int Malloc(int64_t bytes, void** memory) override {
    const int error = cuda_->Malloc(bytes, memory);
    std::lock_guard<std::mutex> lock(mutex_);
    if (error == kCudaSuccess) allocated_[*memory] = bytes;
    return error;
  }
  int Free(void* memory) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      allocated_.erase(memory);
    }
    return cuda_->Free(memory);
  }
  int CopyToHost(void* stream, void* host, const void* device, int64_t bytes) override {
    if (fails_ && good_copies_-- <= 0) return kCudaInvalidValue;
    return cuda_->CopyToHost(stream, host, device, bytes);
  }

  std::string Describe(int error) const override { return cuda_->Describe(error); }
  int Versions(int* driver, int* runtime) override { return cuda_->Versions(driver, runtime); }
  int DeviceCount(int* count) override { return cuda_->DeviceCount(count); }
  int Properties(int ordinal, CudaDeviceProperties* properties) override {
    return cuda_->Properties(ordinal, properties);
  }
  int SetDevice(int ordinal) override { return cuda_->SetDevice(ordinal); }
  int MemoryInfo(int64_t* free_bytes, int64_t* total_bytes) override {
    return cuda_->MemoryInfo(free_bytes, total_bytes);
  }
  int HostRegister(void* memory, int64_t bytes) override {
    return cuda_->HostRegister(memory, bytes);
  }
  int HostUnregister(void* memory) override { return cuda_->HostUnregister(memory); }
  int StreamCreate(void** stream) override { return cuda_->StreamCreate(stream); }
  int StreamSynchronize(void* stream) override { return cuda_->StreamSynchronize(stream); }
  int StreamDestroy(void* stream) override { return cuda_->StreamDestroy(stream); }
  int EventCreate(void** event) override { return cuda_->EventCreate(event); }
  int EventDestroy(void* event) override { return cuda_->EventDestroy(event); }
  int EventRecord(void* event, void* stream) override { return cuda_->EventRecord(event, stream); }
  int StreamWaitEvent(void* stream, void* event) override {
    return cuda_->StreamWaitEvent(stream, event);
  }
  int EventSynchronize(void* event) override { return cuda_->EventSynchronize(event); }
  int EventQuery(void* event) override { return cuda_->EventQuery(event); }
  int EventElapsed(void* start, void* end, float* milliseconds) override {
    return cuda_->EventElapsed(start, end, milliseconds);
  }
  int CopyToDevice(void* stream, void* device, const void* host, int64_t bytes) override {
    return cuda_->CopyToDevice(stream, device, host, bytes);
  }
  int CopyOnDevice(void* stream, void* to, const void* from, int64_t bytes) override {
    return cuda_->CopyOnDevice(stream, to, from, bytes);
  }
  int EnablePeerAccess(int peer) override { return cuda_->EnablePeerAccess(peer); }
  int CopyBetweenDevices(void* stream, void* to, int to_ordinal, const void* from, int from_ordinal,
                         int64_t bytes) override {
    return cuda_->CopyBetweenDevices(stream, to, to_ordinal, from, from_ordinal, bytes);
  }
  int Zero(void* stream, void* device, int64_t bytes) override {
    return cuda_->Zero(stream, device, bytes);
  }
  bool loads_lazily() const override { return cuda_->loads_lazily(); }
  absl::Status LoadLibraries(const CudaSwitches& switches) override {
    return cuda_->LoadLibraries(switches);
  }
  std::vector<CudaLibrary> Libraries() const override { return cuda_->Libraries(); }
  int Product(void* stream, const CudaProduct& product, void* workspace,
              int64_t workspace_bytes) override {
    return cuda_->Product(stream, product, workspace, workspace_bytes);
  }
  int Attention(void* stream, const AttentionArgs& args, void* workspace,
                int64_t workspace_bytes) override {
    return cuda_->Attention(stream, args, workspace, workspace_bytes);
  }
  int AttentionBackward(void* stream, const AttentionBackwardArgs& args) override {
    return cuda_->AttentionBackward(stream, args);
  }
  void PrepareAttention(const AttentionBackwardArgs& args, int64_t workspace_bytes) override {
    cuda_->PrepareAttention(args, workspace_bytes);
  }
  void RangePush(const char* name) override { cuda_->RangePush(name); }
  void RangePop() override { cuda_->RangePop(); }

 private:
  const std::unique_ptr<CudaApi> cuda_;
  std::atomic<bool> fails_ = false;
  std::atomic<int> good_copies_ = 0;  // to the host, before those that fail
  mutable std::mutex mutex_;
  std::map<void*, int64_t> allocated_;  // bytes, by start
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_GPU_WATCHED_CUDA_H_
