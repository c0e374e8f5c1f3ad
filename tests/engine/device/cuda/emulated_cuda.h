// A CudaApi without a GPU: device memory is the host's, streams are queues with a thread each that
// run their work later, events order them, products are plain loops in cuBLAS' own terms. Kernels
// are those of the product, run by emulation.h. What CUDA forbids is refused (a copy over two
// registrations, an unknown pointer, an event that was not recorded, a kernel on a stream of
// another device than the thread's current one), and any call can be made to fail.
//
// Thread safety: all methods may be called from any thread.
#ifndef MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_EMULATED_CUDA_H_
#define MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_EMULATED_CUDA_H_

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/device/cuda/libraries/cuda_api.h"
#include "tests/engine/device/cuda/emulation.h"

namespace megatrain {

// Host memory that the GPUs of a machine have registered, which is pinned for all of them.
struct EmulatedPinned {
  std::mutex mutex;
  std::map<const char*, int64_t> blocks;  // bytes, by start
};

struct EmulatedCudaOptions {
  int devices = 1;
  int driver = 13000, runtime = 13000;
  int64_t memory_bytes = int64_t{4} << 30;
  // The properties of every device. Without a UUID each has one with its number.
  CudaDeviceProperties properties{
      .name = "Emulated", .major = 9, .minor = 0, .reads_registered_memory = true};
  std::vector<int> numa_nodes = {};  // by device; empty: that of `properties`
  // Whether cuDNN is told of. It takes no call.
  bool cudnn = false;
  // Taken of the memory by the first product. 0: nothing is loaded when it is first used.
  int64_t lazy_bytes = 0;
  // The memory that this GPU's machine has pinned; null: a machine of its own.
  std::shared_ptr<EmulatedPinned> pinned = nullptr;
};

// Given to EmulatedCuda::Fail instead of an error: the call never returns, or ends the process.
inline constexpr int kEmulatedHang = -1000;
inline constexpr int kEmulatedCrash = -1001;
// Of Product: an element of the result is wrong, or NaN, or wrong every other time. Of Attention
// the first: cuDNN, if it is told of and not set aside, takes BF16 and gives zeros.
inline constexpr int kEmulatedWrong = -1002;
inline constexpr int kEmulatedNan = -1003;
inline constexpr int kEmulatedUnsteady = -1004;

class EmulatedCuda : public CudaApi {
 public:
  explicit EmulatedCuda(const EmulatedCudaOptions& options = {});
  // REQUIRES: everything that was made is destroyed.
  ~EmulatedCuda() override;

  // The calls of this method's name ("Launch": of a kernel) from the `after`-th on (0: the next)
  // give `error`. With `sticky`, every call of any name does from then on.
  void Fail(const std::string& method, int error, int after = 0, bool sticky = false);
  // Bytes that are allocated, and registered by this GPU, now.
  int64_t allocated_bytes() const;
  int64_t registered_bytes() const;
  // The ranges' names, each once, in the order of their first appearance.
  std::vector<std::string> ranges() const;
  // Calls of attention, forward and backward, that were not announced before.
  int unannounced() const;

  std::string Describe(int error) const override;
  int Versions(int* driver, int* runtime) override;
  int DeviceCount(int* count) override;
  int Properties(int ordinal, CudaDeviceProperties* properties) override;
  int SetDevice(int ordinal) override;
  int MemoryInfo(int64_t* free_bytes, int64_t* total_bytes) override;
  int Malloc(int64_t bytes, void** memory) override;
  int Free(void* memory) override;
  int HostRegister(void* memory, int64_t bytes) override;
  int HostUnregister(void* memory) override;
  int StreamCreate(void** stream) override;
  int StreamSynchronize(void* stream) override;
  int StreamDestroy(void* stream) override;
  int EventCreate(void** event) override;
  int EventDestroy(void* event) override;
  int EventRecord(void* event, void* stream) override;
  int StreamWaitEvent(void* stream, void* event) override;
  int EventSynchronize(void* event) override;
  int EventQuery(void* event) override;
  int EventElapsed(void* start, void* end, float* milliseconds) override;
  int CopyToDevice(void* stream, void* device, const void* host, int64_t bytes) override;
  int CopyToHost(void* stream, void* host, const void* device, int64_t bytes) override;
  int CopyOnDevice(void* stream, void* to, const void* from, int64_t bytes) override;
  int EnablePeerAccess(int peer) override;
  int CopyBetweenDevices(void* stream, void* to, int to_ordinal, const void* from, int from_ordinal,
                         int64_t bytes) override;
  int Zero(void* stream, void* device, int64_t bytes) override;
  bool loads_lazily() const override { return options_.lazy_bytes > 0; }
  absl::Status LoadLibraries(const CudaSwitches& switches) override;
  std::vector<CudaLibrary> Libraries() const override;
  int Product(void* stream, const CudaProduct& product, void* workspace,
              int64_t workspace_bytes) override;
  int Attention(void* stream, const AttentionArgs& args, void* workspace,
                int64_t workspace_bytes) override;
  int AttentionBackward(void* stream, const AttentionBackwardArgs& args) override;
  void PrepareAttention(const AttentionBackwardArgs& args, int64_t workspace_bytes) override;
  void RangePush(const char* name) override;
  void RangePop() override;

 private:
  struct Failure {
    int error = 0, after = 0;
    bool sticky = false;
  };

  // The error that this call is to give, or 0.
  int Called(const std::string& method);
  int CalledAlone(const std::string& method);  // takes mutex_
  // Whether [memory, memory + bytes) lies within one block of `blocks`.
  bool Within(const std::map<const char*, int64_t>& blocks, const void* memory,
              int64_t bytes) const;

  const EmulatedCudaOptions options_;
  mutable std::mutex mutex_;
  std::map<std::string, Failure> failures_;
  int sticky_ = 0;
  std::map<const char*, int64_t> allocated_;
  const std::shared_ptr<EmulatedPinned> pinned_;
  std::map<const char*, int64_t> registered_;  // of pinned_, by this GPU
  int64_t allocated_bytes_ = 0;
  int streams_ = 0, events_ = 0;
  int open_ranges_ = 0;
  int64_t products_ = 0;
  std::set<std::string> announced_;
  int unannounced_ = 0;
  bool loaded_ = false;
  std::string why_no_cudnn_ = "it is not emulated";
  std::vector<std::string> ranges_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_EMULATED_CUDA_H_
