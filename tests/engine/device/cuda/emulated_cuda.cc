#include "tests/engine/device/cuda/emulated_cuda.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <optional>

#include "tests/engine/device/cuda/emulated_event.h"
#include "tests/engine/device/cuda/emulated_product.h"
#include "tests/engine/device/cuda/emulated_queue.h"

namespace megatrain {
namespace {

constexpr int kHostMemoryAlreadyRegistered = 712;

void Must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "emulated cuda: %s\n", what);
  std::abort();
}

// As in CUDA, of each thread, and 0 until it is set.
thread_local int current_device = 0;
constexpr int kCudaInvalidHandle = 400;

cuda::EmulatedStream& StreamOf(void* stream) { return *static_cast<cuda::EmulatedStream*>(stream); }
// Shared with the streams: as CUDA's, an event may be destroyed before they have passed it.
const std::shared_ptr<EmulatedEvent>& EventOf(void* event) {
  return *static_cast<std::shared_ptr<EmulatedEvent>*>(event);
}

// Everything but addresses.
std::string ShapeOf(const AttentionArgs& args) {
  std::string shape;
  const auto add = [&](auto number) { shape += std::to_string(number) + " "; };
  add(static_cast<int>(args.dtype));
  for (int64_t number :
       {args.tokens, args.heads, args.kv_heads, args.head_dim, args.value_dim, args.q_stride,
        args.k_stride, args.v_stride, args.documents, args.shaping.window}) {
    add(number);
  }
  add(args.scale);
  add(args.shaping.softcap);
  add(args.shaping.sinks != nullptr);
  for (int64_t d = 0; d <= args.documents; ++d) add(args.document_starts[d]);
  return shape;
}
std::string ShapeOf(const AttentionBackwardArgs& args) {
  std::string shape = "backward " + ShapeOf(args.forward);
  for (int64_t number : {args.dq_stride, args.dk_stride, args.dv_stride, args.workspace_bytes}) {
    shape += std::to_string(number) + " ";
  }
  return shape;
}

}  // namespace

EmulatedCuda::EmulatedCuda(const EmulatedCudaOptions& options)
    : options_(options),
      pinned_(options.pinned != nullptr ? options.pinned : std::make_shared<EmulatedPinned>()) {}

EmulatedCuda::~EmulatedCuda() {
  Must(allocated_.empty() && streams_ == 0 && events_ == 0, "something was not destroyed");
  Must(registered_.empty(), "host memory is still registered");
  Must(open_ranges_ == 0, "a range was not ended");
}

void EmulatedCuda::Fail(const std::string& method, int error, int after, bool sticky) {
  std::lock_guard<std::mutex> lock(mutex_);
  failures_[method] = {error, after, sticky};
}

int64_t EmulatedCuda::allocated_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return allocated_bytes_;
}

int64_t EmulatedCuda::registered_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  int64_t bytes = 0;
  for (const auto& [start, size] : registered_) bytes += size;
  return bytes;
}

std::vector<std::string> EmulatedCuda::ranges() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return ranges_;
}

int EmulatedCuda::unannounced() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return unannounced_;
}

int EmulatedCuda::Called(const std::string& method) {
  if (sticky_ != 0) return sticky_;
  const auto failure = failures_.find(method);
  if (failure == failures_.end() || failure->second.after-- > 0) return kCudaSuccess;
  if (failure->second.error == kEmulatedHang)
    while (true) pause();
  if (failure->second.error == kEmulatedCrash) raise(SIGSEGV);
  if (failure->second.sticky) sticky_ = failure->second.error;
  return failure->second.error;
}

int EmulatedCuda::CalledAlone(const std::string& method) {
  std::lock_guard<std::mutex> lock(mutex_);
  return Called(method);
}

bool EmulatedCuda::Within(const std::map<const char*, int64_t>& blocks, const void* memory,
                          int64_t bytes) const {
  const char* const start = static_cast<const char*>(memory);
  auto block = blocks.upper_bound(start);
  if (block == blocks.begin()) return false;
  --block;
  return start + bytes <= block->first + block->second;
}

std::string EmulatedCuda::Describe(int error) const {
  return "emulated error " + std::to_string(error);
}

int EmulatedCuda::Versions(int* driver, int* runtime) {
  std::lock_guard<std::mutex> lock(mutex_);
  *driver = options_.driver;
  *runtime = options_.runtime;
  return Called("Versions");
}

int EmulatedCuda::DeviceCount(int* count) {
  std::lock_guard<std::mutex> lock(mutex_);
  *count = options_.devices;
  if (const int error = Called("DeviceCount"); error != 0) return error;
  return options_.devices == 0 ? kCudaNoDevice : kCudaSuccess;
}

int EmulatedCuda::Properties(int ordinal, CudaDeviceProperties* properties) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (ordinal < 0 || ordinal >= options_.devices) return kCudaInvalidDevice;
  *properties = options_.properties;
  properties->memory_bytes = options_.memory_bytes;
  if (properties->uuid.empty()) properties->uuid = "GPU-" + std::to_string(ordinal);
  if (!options_.numa_nodes.empty()) {
    properties->numa_node = options_.numa_nodes.at(static_cast<size_t>(ordinal));
  }
  return Called("Properties");
}

int EmulatedCuda::SetDevice(int ordinal) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (ordinal < 0 || ordinal >= options_.devices) return kCudaInvalidDevice;
  current_device = ordinal;
  return Called("SetDevice");
}

int EmulatedCuda::MemoryInfo(int64_t* free_bytes, int64_t* total_bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  *total_bytes = options_.memory_bytes;
  *free_bytes = options_.memory_bytes - allocated_bytes_ - (loaded_ ? options_.lazy_bytes : 0);
  return Called("MemoryInfo");
}

int EmulatedCuda::Malloc(int64_t bytes, void** memory) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (const int error = Called("Malloc"); error != 0) return error;
  if (allocated_bytes_ + bytes > options_.memory_bytes) return kCudaMemoryAllocation;
  // As CUDA's, and exactly as long as asked.
  const size_t rounded = (static_cast<size_t>(bytes) + 255) / 256 * 256;
  *memory = std::aligned_alloc(256, rounded);
  allocated_[static_cast<const char*>(*memory)] = bytes;
  allocated_bytes_ += bytes;
  return kCudaSuccess;
}

int EmulatedCuda::Free(void* memory) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (memory == nullptr) return Called("Free");
  const auto block = allocated_.find(static_cast<const char*>(memory));
  Must(block != allocated_.end(), "cudaFree of what was not allocated");
  allocated_bytes_ -= block->second;
  allocated_.erase(block);
  std::free(memory);
  return Called("Free");
}

int EmulatedCuda::HostRegister(void* memory, int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (const int error = Called("HostRegister"); error != 0) return error;
  Must(reinterpret_cast<uintptr_t>(memory) % 4096 == 0 && bytes % 4096 == 0,
       "cudaHostRegister of parts of pages");
  const char* const start = static_cast<const char*>(memory);
  std::lock_guard<std::mutex> pinned_lock(pinned_->mutex);
  const auto next = pinned_->blocks.upper_bound(start);
  const bool meets_next = next != pinned_->blocks.end() && next->first < start + bytes;
  if (meets_next || Within(pinned_->blocks, memory, 1)) return kHostMemoryAlreadyRegistered;
  pinned_->blocks[start] = registered_[start] = bytes;
  return kCudaSuccess;
}

int EmulatedCuda::HostUnregister(void* memory) {
  std::lock_guard<std::mutex> lock(mutex_);
  const bool registered = registered_.erase(static_cast<const char*>(memory)) == 1;
  // After an error that stays, what was to be registered may not be.
  Must(registered || sticky_ != 0, "cudaHostUnregister of what was not registered");
  if (registered) {
    std::lock_guard<std::mutex> pinned_lock(pinned_->mutex);
    pinned_->blocks.erase(static_cast<const char*>(memory));
  }
  return Called("HostUnregister");
}

int EmulatedCuda::StreamCreate(void** stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (const int error = Called("StreamCreate"); error != 0) return error;
  *stream = static_cast<cuda::EmulatedStream*>(new QueueStream([this, device = current_device] {
    std::lock_guard<std::mutex> lock(mutex_);
    return device == current_device ? Called("Launch") : kCudaInvalidHandle;
  }));
  ++streams_;
  return kCudaSuccess;
}

int EmulatedCuda::StreamSynchronize(void* stream) {
  if (const int error = CalledAlone("StreamSynchronize"); error != 0) return error;
  std::promise<void> passed;
  StreamOf(stream).Enqueue([&passed] { passed.set_value(); });
  passed.get_future().wait();
  return kCudaSuccess;
}

int EmulatedCuda::StreamDestroy(void* stream) {
  delete static_cast<cuda::EmulatedStream*>(stream);
  std::lock_guard<std::mutex> lock(mutex_);
  --streams_;
  return Called("StreamDestroy");
}

int EmulatedCuda::EventCreate(void** event) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (const int error = Called("EventCreate"); error != 0) return error;
  *event = new std::shared_ptr<EmulatedEvent>(std::make_shared<EmulatedEvent>());
  ++events_;
  return kCudaSuccess;
}

int EmulatedCuda::EventDestroy(void* event) {
  delete static_cast<std::shared_ptr<EmulatedEvent>*>(event);
  std::lock_guard<std::mutex> lock(mutex_);
  --events_;
  return Called("EventDestroy");
}

int EmulatedCuda::EventRecord(void* event, void* stream) {
  if (const int error = CalledAlone("EventRecord"); error != 0) return error;
  const std::shared_ptr<EmulatedEvent> e = EventOf(event);
  StreamOf(stream).Enqueue([e, number = e->Record()] { e->Pass(number); });
  return kCudaSuccess;
}

int EmulatedCuda::StreamWaitEvent(void* stream, void* event) {
  if (const int error = CalledAlone("StreamWaitEvent"); error != 0) return error;
  const std::shared_ptr<EmulatedEvent> e = EventOf(event);
  const int64_t number = e->recorded();
  Must(number > 0, "a wait for an event that was not recorded");
  StreamOf(stream).Enqueue([e, number] { e->WaitFor(number); });
  return kCudaSuccess;
}

int EmulatedCuda::EventSynchronize(void* event) {
  if (const int error = CalledAlone("EventSynchronize"); error != 0) return error;
  EmulatedEvent& e = *EventOf(event);
  e.WaitFor(e.recorded());
  return kCudaSuccess;
}

int EmulatedCuda::EventQuery(void* event) {
  if (const int error = CalledAlone("EventQuery"); error != 0) return error;
  return EventOf(event)->passed() ? kCudaSuccess : kCudaNotReady;
}

int EmulatedCuda::EventElapsed(void* start, void* end, float* milliseconds) {
  if (const int error = CalledAlone("EventElapsed"); error != 0) return error;
  const std::optional<float> elapsed = EmulatedEvent::Milliseconds(*EventOf(start), *EventOf(end));
  if (!elapsed.has_value()) return kCudaNotReady;
  *milliseconds = *elapsed;
  return kCudaSuccess;
}

int EmulatedCuda::CopyToDevice(void* stream, void* device, const void* host, int64_t bytes) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (const int error = Called("CopyToDevice"); error != 0) return error;
    Must(Within(allocated_, device, bytes), "a copy to what is not the device's");
    std::lock_guard<std::mutex> pinned_lock(pinned_->mutex);
    Must(Within(pinned_->blocks, host, bytes), "a copy from what is not one registration's");
  }
  StreamOf(stream).Enqueue([=] { std::memcpy(device, host, static_cast<size_t>(bytes)); });
  return kCudaSuccess;
}

int EmulatedCuda::CopyToHost(void* stream, void* host, const void* device, int64_t bytes) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (const int error = Called("CopyToHost"); error != 0) return error;
    Must(Within(allocated_, device, bytes), "a copy from what is not the device's");
    std::lock_guard<std::mutex> pinned_lock(pinned_->mutex);
    Must(Within(pinned_->blocks, host, bytes), "a copy to what is not one registration's");
  }
  StreamOf(stream).Enqueue([=] { std::memcpy(host, device, static_cast<size_t>(bytes)); });
  return kCudaSuccess;
}

int EmulatedCuda::CopyOnDevice(void* stream, void* to, const void* from, int64_t bytes) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (const int error = Called("CopyOnDevice"); error != 0) return error;
    Must(Within(allocated_, to, bytes) && Within(allocated_, from, bytes),
         "a copy on the device of what is not the device's");
  }
  StreamOf(stream).Enqueue([=] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
  return kCudaSuccess;
}

int EmulatedCuda::EnablePeerAccess(int peer) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (peer < 0 || peer >= options_.devices || peer == current_device) return kCudaInvalidDevice;
  return Called("EnablePeerAccess");
}

int EmulatedCuda::CopyBetweenDevices(void* stream, void* to, int to_ordinal, const void* from,
                                     int from_ordinal, int64_t bytes) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (const int error = Called("CopyBetweenDevices"); error != 0) return error;
    if (std::max(to_ordinal, from_ordinal) >= options_.devices) return kCudaInvalidDevice;
    Must(Within(allocated_, to, bytes) && Within(allocated_, from, bytes),
         "a copy between devices of what is not theirs");
  }
  StreamOf(stream).Enqueue([=] { std::memcpy(to, from, static_cast<size_t>(bytes)); });
  return kCudaSuccess;
}

int EmulatedCuda::Zero(void* stream, void* device, int64_t bytes) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (const int error = Called("Zero"); error != 0) return error;
    Must(Within(allocated_, device, bytes), "zeros to what is not the device's");
  }
  StreamOf(stream).Enqueue([=] { std::memset(device, 0, static_cast<size_t>(bytes)); });
  return kCudaSuccess;
}

int EmulatedCuda::Attention(void* stream, const AttentionArgs& args, void*, int64_t) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!announced_.contains(ShapeOf(args))) ++unannounced_;
  const int error = Called("Attention");
  if (error >= 0) return error != 0 ? error : kNotTaken;
  if (!why_no_cudnn_.empty() || args.dtype != DType::kBF16) return kNotTaken;
  // kEmulatedWrong.
  StreamOf(stream).Enqueue([=] {
    const int64_t rows = args.tokens * args.heads;
    std::memset(args.out, 0, static_cast<size_t>(rows * args.value_dim * DTypeBytes(args.dtype)));
    std::memset(args.lse, 0, static_cast<size_t>(rows) * sizeof(float));
  });
  return kCudaSuccess;
}
int EmulatedCuda::AttentionBackward(void*, const AttentionBackwardArgs& args) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!announced_.contains(ShapeOf(args))) ++unannounced_;
  const int error = Called("AttentionBackward");
  return error != 0 ? error : kNotTaken;
}
void EmulatedCuda::PrepareAttention(const AttentionBackwardArgs& args, int64_t) {
  std::lock_guard<std::mutex> lock(mutex_);
  announced_.insert(ShapeOf(args.forward));
  if (args.workspace_bytes > 0) announced_.insert(ShapeOf(args));
}

std::vector<CudaLibrary> EmulatedCuda::Libraries() const {
  return {{"cuBLASLt", "13.1.0", "plain loops"},
          why_no_cudnn_.empty() ? CudaLibrary{kCudnn, "9.19.0", "takes nothing"}
                                : CudaLibrary{.name = kCudnn, .place = why_no_cudnn_}};
}

absl::Status EmulatedCuda::LoadLibraries(const CudaSwitches& switches) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!switches.cudnn) {
    why_no_cudnn_ = std::string(kCudnnSwitch) + "=off";
  } else if (options_.cudnn) {
    why_no_cudnn_ = "";
  }
  if (Called("LoadLibraries") != 0) return absl::UnavailableError("no library of products");
  return absl::OkStatus();
}

int EmulatedCuda::Product(void* stream, const CudaProduct& product, void* workspace,
                          int64_t workspace_bytes) {
  int spoiled = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    spoiled = Called("Product");
    if (spoiled > 0) return spoiled;
    Must(Within(allocated_, workspace, workspace_bytes), "a workspace that is not the device's");
    if (spoiled == kEmulatedUnsteady && ++products_ % 2 == 0) spoiled = 0;
    loaded_ = true;
    if (const int status = CheckEmulatedProduct(product); status != 0) {
      return kProductFailed + status;
    }
  }
  StreamOf(stream).Enqueue([=] {
    EmulatedProduct(product);
    if (spoiled != 0) SpoilProduct(product, spoiled == kEmulatedNan);
  });
  return kCudaSuccess;
}

void EmulatedCuda::RangePush(const char* name) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++open_ranges_;
  if (std::find(ranges_.begin(), ranges_.end(), name) == ranges_.end()) ranges_.push_back(name);
}

void EmulatedCuda::RangePop() {
  std::lock_guard<std::mutex> lock(mutex_);
  Must(open_ranges_-- > 0, "the end of a range that was not begun");
}

}  // namespace megatrain
