// The real edge: CUDA's runtime, linked statically, and cuBLASLt and cuDNN, loaded when a GPU is
// opened.
#include <cuda_runtime_api.h>
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define MEGATRAIN_NVTX 1
#endif

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/device/cuda/libraries/cublas_lt.h"
#include "engine/device/cuda/libraries/cuda_api.h"
#include "engine/device/cuda/libraries/cudnn_attention.h"
#include "engine/device/cuda/libraries/shared_library.h"

namespace megatrain {
namespace {

static_assert(kCudaSuccess == cudaSuccess && kCudaInvalidValue == cudaErrorInvalidValue &&
              kCudaMemoryAllocation == cudaErrorMemoryAllocation &&
              kCudaInsufficientDriver == cudaErrorInsufficientDriver &&
              kCudaNoDevice == cudaErrorNoDevice && kCudaInvalidDevice == cudaErrorInvalidDevice &&
              kCudaNotReady == cudaErrorNotReady);

cudaStream_t StreamOf(void* stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t EventOf(void* event) { return static_cast<cudaEvent_t>(event); }

std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    const bool begins_group = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    absl::StrAppendFormat(&text, "%s%02x", begins_group ? "-" : "",
                          static_cast<unsigned char>(uuid.bytes[i]));
  }
  return text;
}

class CudaRuntimeApi : public CudaApi {
 public:
  std::string Describe(int error) const override {
    if (error >= kAttentionFailed) return absl::StrCat("cuDNN's error ", error - kAttentionFailed);
    if (error >= kProductFailed) return absl::StrCat("cublasStatus_t ", error - kProductFailed);
    const cudaError_t code = static_cast<cudaError_t>(error);
    return absl::StrCat(cudaGetErrorName(code), " (", error, "): ", cudaGetErrorString(code));
  }

  int Versions(int* driver, int* runtime) override {
    const cudaError_t error = cudaDriverGetVersion(driver);
    return Seen(error != cudaSuccess ? error : cudaRuntimeGetVersion(runtime));
  }
  int DeviceCount(int* count) override { return Seen(cudaGetDeviceCount(count)); }
  int Properties(int ordinal, CudaDeviceProperties* properties) override {
    cudaDeviceProp found;
    const cudaError_t error = cudaGetDeviceProperties(&found, ordinal);
    if (error != cudaSuccess) return Seen(error);
    properties->name = found.name;
    properties->uuid = UuidText(found.uuid);
    properties->major = found.major;
    properties->minor = found.minor;
    properties->memory_bytes = static_cast<int64_t>(found.totalGlobalMem);
    properties->multiprocessors = found.multiProcessorCount;
    properties->host_page_tables = found.pageableMemoryAccessUsesHostPageTables != 0;
    properties->integrated = found.integrated != 0;
    properties->reads_registered_memory = found.canUseHostPointerForRegisteredMem != 0;
    int node = -1;
    if (Seen(cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, ordinal)) == cudaSuccess) {
      properties->numa_node = node;
    }
    return cudaSuccess;
  }
  int SetDevice(int ordinal) override { return Seen(cudaSetDevice(ordinal)); }
  int MemoryInfo(int64_t* free_bytes, int64_t* total_bytes) override {
    size_t free_size = 0, total_size = 0;
    const cudaError_t error = cudaMemGetInfo(&free_size, &total_size);
    *free_bytes = static_cast<int64_t>(free_size);
    *total_bytes = static_cast<int64_t>(total_size);
    return Seen(error);
  }

  int Malloc(int64_t bytes, void** memory) override {
    return Seen(cudaMalloc(memory, static_cast<size_t>(bytes)));
  }
  int Free(void* memory) override { return Seen(cudaFree(memory)); }
  int HostRegister(void* memory, int64_t bytes) override {
    return Seen(cudaHostRegister(memory, static_cast<size_t>(bytes),
                                 cudaHostRegisterPortable | cudaHostRegisterMapped));
  }
  int HostUnregister(void* memory) override { return Seen(cudaHostUnregister(memory)); }

  int StreamCreate(void** stream) override {
    cudaStream_t made = nullptr;
    const cudaError_t error = cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking);
    *stream = made;
    return Seen(error);
  }
  int StreamSynchronize(void* stream) override {
    return Seen(cudaStreamSynchronize(StreamOf(stream)));
  }
  int StreamDestroy(void* stream) override { return Seen(cudaStreamDestroy(StreamOf(stream))); }
  int EventCreate(void** event) override {
    cudaEvent_t made = nullptr;
    // A thread that waits sleeps: the processors are the optimizer's.
    const cudaError_t error = cudaEventCreateWithFlags(&made, cudaEventBlockingSync);
    *event = made;
    return Seen(error);
  }
  int EventDestroy(void* event) override { return Seen(cudaEventDestroy(EventOf(event))); }
  int EventRecord(void* event, void* stream) override {
    return Seen(cudaEventRecord(EventOf(event), StreamOf(stream)));
  }
  int StreamWaitEvent(void* stream, void* event) override {
    return Seen(cudaStreamWaitEvent(StreamOf(stream), EventOf(event), 0));
  }
  int EventSynchronize(void* event) override { return Seen(cudaEventSynchronize(EventOf(event))); }
  int EventQuery(void* event) override { return Seen(cudaEventQuery(EventOf(event))); }
  int EventElapsed(void* start, void* end, float* milliseconds) override {
    return Seen(cudaEventElapsedTime(milliseconds, EventOf(start), EventOf(end)));
  }

  int CopyToDevice(void* stream, void* device, const void* host, int64_t bytes) override {
    return Seen(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                                StreamOf(stream)));
  }
  int CopyToHost(void* stream, void* host, const void* device, int64_t bytes) override {
    return Seen(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost,
                                StreamOf(stream)));
  }
  int CopyOnDevice(void* stream, void* to, const void* from, int64_t bytes) override {
    return Seen(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice,
                                StreamOf(stream)));
  }
  int EnablePeerAccess(int peer) override {
    int own = 0, possible = 0;
    cudaError_t error = cudaGetDevice(&own);
    if (error == cudaSuccess) error = cudaDeviceCanAccessPeer(&possible, own, peer);
    if (error != cudaSuccess) return Seen(error);
    if (possible == 0) return kNotTaken;
    error = cudaDeviceEnablePeerAccess(peer, 0);
    return Seen(error) == cudaErrorPeerAccessAlreadyEnabled ? cudaSuccess : error;
  }
  int CopyBetweenDevices(void* stream, void* to, int to_ordinal, const void* from, int from_ordinal,
                         int64_t bytes) override {
    return Seen(cudaMemcpyPeerAsync(to, to_ordinal, from, from_ordinal, static_cast<size_t>(bytes),
                                    StreamOf(stream)));
  }
  int Zero(void* stream, void* device, int64_t bytes) override {
    return Seen(cudaMemsetAsync(device, 0, static_cast<size_t>(bytes), StreamOf(stream)));
  }

  bool loads_lazily() const override { return true; }
  absl::Status LoadLibraries(const CudaSwitches& switches) override {
    MutexLock lock(&mutex_);
    if (products_ != nullptr) return absl::OkStatus();
    MT_ASSIGN_OR_RETURN(products_, CublasLt::Load(switches.kernels.split_sums));
    if (!switches.cudnn) {
      why_own_attention_ = absl::StrCat(kCudnnSwitch, "=off");
      return absl::OkStatus();
    }
    // Without it the kernels of our own are used.
    absl::StatusOr<std::unique_ptr<CudnnAttention>> attention = CudnnAttention::Load();
    if (attention.ok()) {
      attention_ = *std::move(attention);
    } else {
      why_own_attention_ = std::string(attention.status().message());
    }
    return absl::OkStatus();
  }

  std::vector<CudaLibrary> Libraries() const override {
    return {products_->Library(), attention_ != nullptr
                                      ? attention_->Library()
                                      : CudaLibrary{.name = kCudnn, .place = why_own_attention_}};
  }
  int Product(void* stream, const CudaProduct& product, void* workspace,
              int64_t workspace_bytes) override {
    const int status = products_->Product(stream, product, workspace, workspace_bytes);
    if (status == 0) return cudaSuccess;
    return OrOfTheContext(stream, kProductFailed + status);
  }

  int Attention(void* stream, const AttentionArgs& args, void* workspace,
                int64_t workspace_bytes) override {
    if (attention_ == nullptr) return kNotTaken;
    const int error = attention_->Forward(stream, args, workspace, workspace_bytes);
    return error >= kAttentionFailed ? OrOfTheContext(stream, error) : error;
  }
  int AttentionBackward(void* stream, const AttentionBackwardArgs& args) override {
    if (attention_ == nullptr) return kNotTaken;
    const int error = attention_->Backward(stream, args);
    return error >= kAttentionFailed ? OrOfTheContext(stream, error) : error;
  }

  void PrepareAttention(const AttentionBackwardArgs& args, int64_t workspace_bytes) override {
    if (attention_ != nullptr) attention_->Prepare(args, workspace_bytes);
  }

  // NVTX looks for a profiler at its first call, and does nothing from then on without one.
#ifdef MEGATRAIN_NVTX
  void RangePush(const char* name) override { nvtxRangePushA(name); }
  void RangePop() override { nvtxRangePop(); }
#else
  void RangePush(const char*) override {}
  void RangePop() override {}
#endif

 private:
  // The runtime also keeps the error for cudaGetLastError, where the next launch would find it.
  static int Seen(cudaError_t error) {
    if (error != cudaSuccess) (void)cudaGetLastError();
    return error;
  }

  // A library's error, or what the context had gone wrong with before, which says more: libraries
  // have runtimes of their own, so that ours does not hear of it by itself.
  static int OrOfTheContext(void* stream, int error) {
    const cudaError_t of_context = cudaStreamQuery(StreamOf(stream));
    (void)cudaGetLastError();
    return of_context == cudaSuccess || of_context == cudaErrorNotReady
               ? error
               : static_cast<int>(of_context);
  }

  Mutex mutex_;
  // Set once, before the first stream.
  std::unique_ptr<CublasLt> products_;
  std::unique_ptr<CudnnAttention> attention_;  // null: there is none
  std::string why_own_attention_;
};

}  // namespace

std::unique_ptr<CudaApi> OpenCudaApi() {
  // The runtime looks for the driver's library by its name alone, which any loaded library has.
  static const bool loaded = OpenSharedLibrary("libcuda.so.1").ok();
  (void)loaded;
  return std::make_unique<CudaRuntimeApi>();
}

}  // namespace megatrain
