// The interface to CUDA: the functions of CUDA's runtime, cuBLASLt (products) and cuDNN (attention)
// that the device calls. The code that uses this interface is built and tested without CUDA.
//
// Methods that return an int return a cudaError_t, 0 for success, unless said otherwise. Numbers
// from kProductFailed to below kAttentionFailed are errors of cuBLASLt, and those from
// kAttentionFailed on are errors of cuDNN. Results behind pointers are valid after success only.
// Streams and events are void* to CUDA's objects.
//
// Thread safety: any thread may call all methods. Calls act on the calling thread's current device,
// which the thread must first choose by SetDevice.
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
// The first error number of cuBLASLt, and the first one of cuDNN: the library's own status is added
// to it. CUDA has no errors with such numbers.
inline constexpr int kProductFailed = 100'000;
inline constexpr int kAttentionFailed = 200'000;
// The result if the library is not there or does not take the call. Then no result is written.
inline constexpr int kNotTaken = -1;

// The properties of a GPU.
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
  // The path of the library's file, perhaps with remarks. If the library is not used, the reason.
  std::string place = "";
};

// Describes out = alpha op(a) op(b) (+ c) (+ bias), column-major as in cuBLAS. op(a) is [m, k],
// op(b) is [k, n], and `out` and `c` are [m, n]. A stride is the distance between columns in
// elements, that of `c` being out_stride. bias [m] is added to every column. Sums are FP32. The
// parts of a split sum are added in FP32 in the workspace and not in `out`. cuBLASLt has no
// products of FP32 with a BF16 result, and takes a bias of the output's type only.
struct CudaProduct {
  int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::kF32;      // the type of a and b
  DType out_dtype = DType::kF32;  // the type of c, out and bias
  bool transpose_a = false, transpose_b = false;
  const void* a = nullptr;
  int64_t a_stride = 0;
  const void* b = nullptr;
  int64_t b_stride = 0;
  const void* c = nullptr;  // may be null; may be `out`
  void* out = nullptr;
  int64_t out_stride = 0;
  const void* bias = nullptr;  // may be null
  float alpha = 1;
};

// The functions of CUDA and its libraries. Tests have an emulation.
class CudaApi {
 public:
  virtual ~CudaApi() = default;

  // ---- Errors, devices and memory ----

  // Returns a description of an error of these methods, for example "cudaErrorMemoryAllocation (2):
  // out of memory".
  virtual std::string Describe(int error) const = 0;

  // Gives the newest CUDA version that the driver supports, and that of the runtime, as 1000 *
  // major + 10 * minor. *driver becomes 0 if there is no driver.
  virtual int Versions(int* driver, int* runtime) = 0;
  // Returns kCudaNoDevice if there is no GPU, and kCudaInsufficientDriver if the driver is too old.
  virtual int DeviceCount(int* count) = 0;
  virtual int Properties(int ordinal, CudaDeviceProperties* properties) = 0;
  // Chooses the calling thread's current device.
  virtual int SetDevice(int ordinal) = 0;
  virtual int MemoryInfo(int64_t* free_bytes, int64_t* total_bytes) = 0;

  // Allocates device memory. Returns kCudaMemoryAllocation if there is not enough.
  virtual int Malloc(int64_t bytes, void** memory) = 0;
  virtual int Free(void* memory) = 0;
  // Pins host memory (whole pages) for the copies of all devices, and maps it for kernels.
  virtual int HostRegister(void* memory, int64_t bytes) = 0;
  // Undoes HostRegister for the same start.
  virtual int HostUnregister(void* memory) = 0;

  // ---- Streams and events ----

  virtual int StreamCreate(void** stream) = 0;
  // Waits until the queued work is done. Work continues after StreamDestroy, so call this first if
  // memory that the work uses will be freed.
  virtual int StreamSynchronize(void* stream) = 0;
  virtual int StreamDestroy(void* stream) = 0;
  virtual int EventCreate(void** event) = 0;
  virtual int EventDestroy(void* event) = 0;
  // Sets the event to the point after all work queued on the stream so far.
  virtual int EventRecord(void* event, void* stream) = 0;
  // Makes work that is queued on the stream from now on start after the event.
  virtual int StreamWaitEvent(void* stream, void* event) = 0;
  // Blocks the calling thread until the work before the event is done.
  virtual int EventSynchronize(void* event) = 0;
  // Returns kCudaNotReady if work before the event is not done yet.
  virtual int EventQuery(void* event) = 0;
  virtual int EventElapsed(void* start, void* end, float* milliseconds) = 0;

  // ---- Copies ----

  // CopyToDevice and CopyToHost queue a copy. `host` must lie in one range that HostRegister
  // pinned, so that the call does not wait for the copy.
  virtual int CopyToDevice(void* stream, void* device, const void* host, int64_t bytes) = 0;
  virtual int CopyToHost(void* stream, void* host, const void* device, int64_t bytes) = 0;
  // Queues a copy within device memory. Benchmarks compare memory-bound kernels with it.
  virtual int CopyOnDevice(void* stream, void* to, const void* from, int64_t bytes) = 0;
  // Lets the thread's device read and write the memory of device `peer` directly, not through the
  // host, from now on. Returns kNotTaken if the two devices have no such connection, and 0 if this
  // is enabled already.
  virtual int EnablePeerAccess(int peer) = 0;
  // Queues a copy from the memory of one device to that of another. The copy goes through the host
  // if there is no other way. Benchmarks compare exchanges with it.
  virtual int CopyBetweenDevices(void* stream, void* to, int to_ordinal, const void* from,
                                 int from_ordinal, int64_t bytes) = 0;
  // Queues setting device memory to 0.
  virtual int Zero(void* stream, void* device, int64_t bytes) = 0;

  // ---- Libraries and profiling ----

  // Returns true if libraries and kernels take device memory of their own when they are first used.
  virtual bool loads_lazily() const = 0;
  // Loads cuBLASLt and, unless `switches` turn it off, cuDNN, both for the thread's device. Returns
  // the errors of CublasLt::Load. A missing cuDNN is no error. After a success, later calls do
  // nothing, even for other devices.
  virtual absl::Status LoadLibraries(const CudaSwitches& switches) = 0;
  // Returns cuBLASLt, then cuDNN, whether it is used or not. REQUIRES: LoadLibraries succeeded.
  virtual std::vector<CudaLibrary> Libraries() const = 0;
  // Queues a product. The algorithm is the library's first choice for the shape, or for one of a
  // few shapes near it (cublas_lt.h). Algorithms are not timed, so that the same machine gives the
  // same bits. Returns kProductFailed or a greater number if cuBLASLt fails or does not take the
  // product, or the cudaError_t of a failure of the stream's earlier work. `workspace` is device
  // memory of workspace_bytes that only this stream uses. REQUIRES: LoadLibraries succeeded, no
  // size is 0, and workspace_bytes is the same in all calls.
  virtual int Product(void* stream, const CudaProduct& product, void* workspace,
                      int64_t workspace_bytes) = 0;

  // Attention and AttentionBackward queue attention by cuDNN. They return kNotTaken if cuDNN is not
  // there or does not take the call. For a given installation this depends on shapes, the lengths
  // of documents, the sizes of workspaces and alignment alone. Statistics have the form of
  // kernel_args.h, so one direction may be cuDNN's and the other not. `workspace` is device memory
  // of workspace_bytes that only this stream uses.
  virtual int Attention(void* stream, const AttentionArgs& args, void* workspace,
                        int64_t workspace_bytes) = 0;
  virtual int AttentionBackward(void* stream, const AttentionBackwardArgs& args) = 0;
  // Begins to prepare cuDNN for both calls in the background, as Kernels::PrepareAttention
  // describes. `workspace_bytes` is the workspace_bytes that Attention will be given.
  virtual void PrepareAttention(const AttentionBackwardArgs& args, int64_t workspace_bytes) = 0;

  // RangePush and RangePop give the work that the calling thread queues between them the name
  // `name`, for an attached profiler. Without a profiler they cost next to nothing.
  virtual void RangePush(const char* name) = 0;
  virtual void RangePop() = 0;
};

// Returns the implementation by CUDA itself, never null. It exists in builds with CUDA's toolkit
// only. A missing driver is no error here, but Versions tells of it.
std::unique_ptr<CudaApi> OpenCudaApi();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDA_API_H_
