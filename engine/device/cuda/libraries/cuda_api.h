// The edge to CUDA: what the device calls of the runtime, of cuBLASLt and of cuDNN, so that
// everything behind it is built and tested without them. The methods return a cudaError_t as an
// int, 0 = success; cuBLASLt's errors are mapped to kProductFailed, cuDNN's to kAttentionFailed.
//
// Thread safety: as CUDA's: any thread; a thread chooses its device first (SetDevice).
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDA_API_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDA_API_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/base/dtype.h"
#include "engine/device/cuda/libraries/cuda_switches.h"
#include "engine/device/kernel_args.h"

namespace megatrain {

// Values of cudaError_t that are told apart.
inline constexpr int kCudaSuccess = 0;
inline constexpr int kCudaInvalidValue = 1;
inline constexpr int kCudaMemoryAllocation = 2;
inline constexpr int kCudaInsufficientDriver = 35;
inline constexpr int kCudaNoDevice = 100;
inline constexpr int kCudaInvalidDevice = 101;
inline constexpr int kCudaNotReady = 600;
// Not CUDA's: cuBLASLt refused or failed.
inline constexpr int kProductFailed = 100'000;
inline constexpr int kAttentionFailed = 200'000;  // cuDNN's
// The library is not there, or does not take such a call: nothing was queued.
inline constexpr int kNotTaken = -1;

struct CudaDeviceProperties {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int64_t memory_bytes = 0;
  int multiprocessors = 0;
  int numa_node = -1;             // of the host memory nearest to it; -1 = not known
  bool host_page_tables = false;  // reads pageable memory through the host's page tables (GH200)
  bool integrated = false;        // shares the host's memory
  // Kernels read registered host memory at the host's address.
  bool reads_registered_memory = false;
};

inline constexpr char kCudnn[] = "cuDNN";

// A library that computes, loaded at run time.
struct CudaLibrary {
  std::string name = "";     // "cuDNN"
  std::string version = "";  // "9.19.0"; empty: it is not used
  std::string place =
      "";  // its file; where it is not used, why not: every place that was looked at
};

// out = op(a) op(b) + beta c (+ bias), column-major as cuBLAS has it: out is [m, n] with leading
// dimension out_stride, c as out; bias [m] is added to every column. FP32 sums; a split sum is
// added up in FP32 in the workspace, never in place. cuBLASLt has no products of FP32 that end in
// BF16, and takes a bias in the output's type alone.
struct CudaProduct {
  int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::kF32;      // of a, b
  DType out_dtype = DType::kF32;  // of c, out, bias
  bool transpose_a = false, transpose_b = false;
  const void* a = nullptr;
  int64_t a_stride = 0;
  const void* b = nullptr;
  int64_t b_stride = 0;
  const void* c = nullptr;  // null: beta is 0
  void* out = nullptr;
  int64_t out_stride = 0;
  const void* bias = nullptr;  // null: none
};

class CudaApi {
 public:
  virtual ~CudaApi() = default;

  // "cudaErrorMemoryAllocation (2): out of memory".
  virtual std::string Describe(int error) const = 0;

  // As 1000 * major + 10 * minor. A driver of 0: there is none.
  virtual int Versions(int* driver, int* runtime) = 0;
  virtual int DeviceCount(int* count) = 0;
  virtual int Properties(int ordinal, CudaDeviceProperties* properties) = 0;
  virtual int SetDevice(int ordinal) = 0;
  virtual int MemoryInfo(int64_t* free_bytes, int64_t* total_bytes) = 0;

  virtual int Malloc(int64_t bytes, void** memory) = 0;
  virtual int Free(void* memory) = 0;
  // Pins host memory for the device's copies, and maps it for its kernels; both whole pages.
  virtual int HostRegister(void* memory, int64_t bytes) = 0;
  virtual int HostUnregister(void* memory) = 0;

  virtual int StreamCreate(void** stream) = 0;
  // What is queued goes on after StreamDestroy: whoever frees what it uses waits first.
  virtual int StreamSynchronize(void* stream) = 0;
  virtual int StreamDestroy(void* stream) = 0;
  virtual int EventCreate(void** event) = 0;
  virtual int EventDestroy(void* event) = 0;
  virtual int EventRecord(void* event, void* stream) = 0;
  virtual int StreamWaitEvent(void* stream, void* event) = 0;
  virtual int EventSynchronize(void* event) = 0;
  virtual int EventElapsed(void* start, void* end, float* milliseconds) = 0;

  virtual int CopyToDevice(void* stream, void* device, const void* host, int64_t bytes) = 0;
  virtual int CopyToHost(void* stream, void* host, const void* device, int64_t bytes) = 0;
  // What kernels that are bound by memory are measured against.
  virtual int CopyOnDevice(void* stream, void* to, const void* from, int64_t bytes) = 0;
  virtual int Zero(void* stream, void* device, int64_t bytes) = 0;

  // Whether libraries and kernels take memory when they are first used, beside what is allocated.
  virtual bool loads_lazily() const = 0;
  // Finds the library of products, for the thread's device, and, unless it is set aside, cuDNN if
  // it is there. Unavailable: where the former was looked for.
  virtual absl::Status LoadLibraries(const CudaSwitches& switches) = 0;
  // REQUIRES: LoadLibraries succeeded. That of products, then kCudnn.
  virtual std::vector<CudaLibrary> Libraries() const = 0;
  // REQUIRES: LoadLibraries succeeded. The algorithm is the library's first choice for the shape,
  // asked for once: never timed, so that the same machine gives the same bits. `workspace` belongs
  // to the stream.
  virtual int Product(void* stream, const CudaProduct& product, void* workspace,
                      int64_t workspace_bytes) = 0;

  // Attention by cuDNN, where it is found; else, and for what it does not take, kNotTaken, which
  // depends on shapes alone. The statistics are those of kernel_args.h, so that one direction may
  // be the library's and the other not. `workspace` belongs to the stream.
  virtual int Attention(void* stream, const AttentionArgs& args, void* workspace,
                        int64_t workspace_bytes) = 0;
  virtual int AttentionBackward(void* stream, const AttentionBackwardArgs& args) = 0;
  // Begins to make cuDNN ready for both calls, on a thread of its own. As
  // Kernels::PrepareAttention; `workspace_bytes`: that Attention will be given.
  virtual void PrepareAttention(const AttentionBackwardArgs& args, int64_t workspace_bytes) = 0;

  // Around what the thread queues, for a profiler that is attached; else next to nothing.
  virtual void RangePush(const char* name) = 0;
  virtual void RangePop() = 0;
};

// CUDA's own, in builds with the toolkit.
std::unique_ptr<CudaApi> OpenCudaApi();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDA_API_H_
