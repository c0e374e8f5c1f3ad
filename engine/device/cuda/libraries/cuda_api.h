// The interface to CUDA: the functions of the runtime, cuBLASLt and cuDNN that the device calls.
// The code that uses it is built and tested without CUDA. The methods return a cudaError_t as an
// int, 0 for success. Numbers from kProductFailed on are errors of cuBLASLt, those from
// kAttentionFailed on errors of cuDNN.
//
// Thread safety: as in CUDA, any thread may call. A thread must first choose its device
// (SetDevice).
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

// The values of cudaError_t that callers distinguish.
inline constexpr int kCudaSuccess = 0;
inline constexpr int kCudaInvalidValue = 1;
inline constexpr int kCudaMemoryAllocation = 2;
inline constexpr int kCudaInsufficientDriver = 35;
inline constexpr int kCudaNoDevice = 100;
inline constexpr int kCudaInvalidDevice = 101;
inline constexpr int kCudaNotReady = 600;
// The first error number of cuBLASLt, and that of cuDNN. They are not values of CUDA.
inline constexpr int kProductFailed = 100'000;
inline constexpr int kAttentionFailed = 200'000;
// Returned if the library is not there or does not support the call. Then no result is written.
inline constexpr int kNotTaken = -1;

struct CudaDeviceProperties {
  std::string name;
  std::string uuid = "";     // "GPU-" and 32 hex digits in groups, as nvidia-smi -L prints it
  int major = 0, minor = 0;  // compute capability
  int64_t memory_bytes = 0;
  int multiprocessors = 0;
  int numa_node = -1;             // the nearest NUMA node; -1 = not known
  bool host_page_tables = false;  // reads pageable host memory (GH200)
  bool integrated = false;        // shares the host's memory
  // Kernels read registered host memory at the host's address.
  bool reads_registered_memory = false;
};

inline constexpr char kCudnn[] = "cuDNN";

// A library of kernels that is loaded at run time.
struct CudaLibrary {
  std::string name = "";     // "cuDNN"
  std::string version = "";  // "9.19.0"; empty if the library is not used
  // The library's file. If the library is not used, the reason, with every place that was searched.
  std::string place = "";
};

// Describes out = alpha op(a) op(b) + beta c (+ bias), column-major as in cuBLAS. `out` and `c` are
// [m, n] with leading dimension out_stride; beta is 1, or 0 if c is null. bias [m] is added to
// every column. Sums are FP32. The parts of a split sum are added in FP32 in the workspace and not
// in place. cuBLASLt has no products of FP32 with a BF16 result, and takes a bias in the output's
// type only.
struct CudaProduct {
  int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::kF32;      // the type of a and b
  DType out_dtype = DType::kF32;  // the type of c, out and bias
  bool transpose_a = false, transpose_b = false;
  const void* a = nullptr;
  int64_t a_stride = 0;
  const void* b = nullptr;
  int64_t b_stride = 0;
  const void* c = nullptr;  // may be null
  void* out = nullptr;
  int64_t out_stride = 0;
  const void* bias = nullptr;  // may be null
  float alpha = 1;
};

class CudaApi {
 public:
  virtual ~CudaApi() = default;

  // Describes an error of these methods, for example "cudaErrorMemoryAllocation (2): out of
  // memory".
  virtual std::string Describe(int error) const = 0;

  // Sets versions to 1000 * major + 10 * minor. `driver` becomes 0 if there is no driver.
  virtual int Versions(int* driver, int* runtime) = 0;
  virtual int DeviceCount(int* count) = 0;
  virtual int Properties(int ordinal, CudaDeviceProperties* properties) = 0;
  virtual int SetDevice(int ordinal) = 0;
  // MemoryInfo, Malloc and the creation of streams and events act on the device that the thread
  // chose.
  virtual int MemoryInfo(int64_t* free_bytes, int64_t* total_bytes) = 0;

  virtual int Malloc(int64_t bytes, void** memory) = 0;
  virtual int Free(void* memory) = 0;
  // Pins host memory (whole pages) for copies and maps it for kernels.
  virtual int HostRegister(void* memory, int64_t bytes) = 0;
  virtual int HostUnregister(void* memory) = 0;

  virtual int StreamCreate(void** stream) = 0;
  // Queued work continues after StreamDestroy, so call this before memory that it uses is freed.
  virtual int StreamSynchronize(void* stream) = 0;
  virtual int StreamDestroy(void* stream) = 0;
  virtual int EventCreate(void** event) = 0;
  virtual int EventDestroy(void* event) = 0;
  virtual int EventRecord(void* event, void* stream) = 0;
  virtual int StreamWaitEvent(void* stream, void* event) = 0;
  virtual int EventSynchronize(void* event) = 0;
  // Returns kCudaNotReady if work before the event is not done yet.
  virtual int EventQuery(void* event) = 0;
  virtual int EventElapsed(void* start, void* end, float* milliseconds) = 0;

  virtual int CopyToDevice(void* stream, void* device, const void* host, int64_t bytes) = 0;
  virtual int CopyToHost(void* stream, void* host, const void* device, int64_t bytes) = 0;
  // Queues a copy within device memory. Benchmarks compare memory-bound kernels with it.
  virtual int CopyOnDevice(void* stream, void* to, const void* from, int64_t bytes) = 0;
  // Lets the thread's device read and write the memory of another one without the host between
  // them, from now on. Returns kNotTaken if they have no such way.
  virtual int EnablePeerAccess(int peer) = 0;
  // Queues a copy from the memory of one device to that of another, through the host if there is no
  // other way. Benchmarks compare exchanges with it.
  virtual int CopyBetweenDevices(void* stream, void* to, int to_ordinal, const void* from,
                                 int from_ordinal, int64_t bytes) = 0;
  virtual int Zero(void* stream, void* device, int64_t bytes) = 0;

  // Returns true if libraries and kernels take device memory of their own when they are first used.
  virtual bool loads_lazily() const = 0;
  // Loads the library for products and, unless `switches` turn it off, cuDNN for the thread's
  // device. Returns the errors of CublasLt::Load. A missing cuDNN is no error. After a success,
  // later calls do nothing, for other devices too.
  virtual absl::Status LoadLibraries(const CudaSwitches& switches) = 0;
  // Returns the library for products, then cuDNN. REQUIRES: LoadLibraries succeeded.
  virtual std::vector<CudaLibrary> Libraries() const = 0;
  // Queues a product. The algorithm is the library's first choice for the shape, or for one of a
  // few shapes near it (cublas_lt.h), requested once and never timed, so that the same machine
  // gives the same bits. `workspace` belongs to the stream. REQUIRES: LoadLibraries succeeded, and
  // no size is 0.
  virtual int Product(void* stream, const CudaProduct& product, void* workspace,
                      int64_t workspace_bytes) = 0;

  // Queue attention by cuDNN. They return kNotTaken if cuDNN is not there or does not take the
  // call, which for a given installation depends on shapes and alignment alone. Statistics have the
  // form of kernel_args.h, so one direction may be cuDNN's and the other not. `workspace` belongs
  // to the stream.
  virtual int Attention(void* stream, const AttentionArgs& args, void* workspace,
                        int64_t workspace_bytes) = 0;
  virtual int AttentionBackward(void* stream, const AttentionBackwardArgs& args) = 0;
  // Begins to prepare cuDNN for both calls in the background, as Kernels::PrepareAttention
  // describes. `workspace_bytes` is the size that Attention will be given.
  virtual void PrepareAttention(const AttentionBackwardArgs& args, int64_t workspace_bytes) = 0;

  // Name the work that the calling thread queues between push and pop, for an attached profiler.
  // Without a profiler they cost next to nothing.
  virtual void RangePush(const char* name) = 0;
  virtual void RangePop() = 0;
};

// Returns the implementation by CUDA itself, in builds with the toolkit.
std::unique_ptr<CudaApi> OpenCudaApi();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDA_API_H_
