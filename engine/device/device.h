// The interface of a device (a GPU or the cpu) that trains: memory, in-order streams, events,
// copies and kernels.
//
// Lifetimes: the device must outlive its streams, events and memory.
//
// Errors are ResourceExhausted for lack of memory and Internal for other failures of the device,
// unless said otherwise. Errors of queued work come from later calls. If IsDeviceLost
// (device_lost.h) is true for an error, this process can no longer use the device.
//
// Thread safety: any thread may call the methods of Device, also for the same Event, but only one
// thread at a time may use a Stream.
#ifndef MEGATRAIN_ENGINE_DEVICE_DEVICE_H_
#define MEGATRAIN_ENGINE_DEVICE_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/kernels.h"

namespace megatrain {

// An in-order queue of device work.
class Stream {
 public:
  virtual ~Stream() = default;
  // Returns the stream for libraries that queue work of their own. It is a cudaStream_t, valid as
  // long as this object, or null on the cpu device.
  virtual void* native_handle() const { return nullptr; }
};

// A point in a stream, set by Device::Record. Recording again moves it to the new point. A Wait
// that is queued already keeps the old one.
class Event {
 public:
  virtual ~Event() = default;
};

// One block of device memory, freed with the object. Its content is undefined at first. REQUIRES:
// no queued work uses it when it is destroyed.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // Returns the start of the block, aligned to 256 bytes and valid as long as this object.
  virtual void* data() const = 0;
  virtual int64_t bytes() const = 0;
};

// The purpose of a stream. A stream for kernels (kCompute) takes device memory
// (KernelSizes::StreamWorkspaceBytes). A stream for copies (kCopy) takes none, and few kernels can
// be queued on it (kernels.h).
enum class StreamUse { kCompute, kCopy };

// Receives the number of bytes that PinHost has pinned so far. If it returns an error, PinHost
// stops and returns that error.
using PinProgress = std::function<absl::Status(int64_t done)>;

class Device {
 public:
  virtual ~Device() = default;

  // ---- Properties ----

  // Returns a description of the device for people.
  virtual std::string Describe() const = 0;
  // Returns the names of the processor and the libraries that determine how results are rounded
  // with this choice of attention. On devices that return the same text, the same work gives the
  // same bits. Otherwise the bits may differ.
  virtual std::string Arithmetic(AttentionChoice attention) const = 0;
  // Returns FailedPrecondition, with the reason, if `attention` requires a library that is not
  // there.
  virtual absl::Status CheckAttention(AttentionChoice attention) const {
    if (attention != AttentionChoice::kLibrary) return absl::OkStatus();
    return absl::FailedPreconditionError("this device has attention of its own alone");
  }
  // Returns the identifier of the device, which no other device in the world has, or "" if the
  // device has none.
  virtual std::string Uuid() const { return ""; }
  // Returns the NUMA node whose host memory is nearest, or -1 if it is not known or none is nearer.
  virtual int numa_node() const { return -1; }
  // Returns the bytes of the device's own memory, free or not, or 0 if the device uses host memory.
  virtual int64_t MemoryBytes() const { return 0; }
  // Returns the free bytes of the device's own memory, or nullopt if the device uses host memory.
  virtual absl::StatusOr<std::optional<int64_t>> FreeBytes() = 0;
  // Returns the bytes of FreeBytes that must stay free, because libraries take more memory when
  // their kernels are first used.
  virtual int64_t ReserveBytes() const { return 0; }

  // ---- Memory, streams and events ----

  // Allocates one block. This is slow and meant for few large blocks, not for use within a step.
  // Returns ResourceExhausted, with the bytes in the message, if there is not enough memory.
  // REQUIRES: bytes > 0.
  virtual absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t bytes) = 0;
  // Creates an empty stream. Destroying it waits for the work that is queued on it.
  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream(StreamUse use) = 0;
  // Creates an event that has not been recorded.
  virtual absl::StatusOr<std::unique_ptr<Event>> CreateEvent() = 0;

  // Sets the event to the point after all work queued on the stream so far.
  virtual absl::Status Record(Stream& stream, Event& event) = 0;
  // Makes work that is queued on the stream from now on start after the event. Returns at once. The
  // event may be of another stream. REQUIRES: the event has been recorded.
  virtual absl::Status Wait(Stream& stream, Event& event) = 0;
  // Blocks the calling thread until the work before the event is done. REQUIRES: the event has been
  // recorded.
  virtual absl::Status Synchronize(Event& event) = 0;
  // Returns whether the work before the event is done. REQUIRES: the event has been recorded.
  virtual absl::StatusOr<bool> Done(Event& event) = 0;
  // Returns the seconds from `start` to `end`. REQUIRES: both have been recorded, and the work
  // before both is done.
  virtual absl::StatusOr<double> ElapsedSeconds(Event& start, Event& end) = 0;

  // ---- Host memory, and copies ----

  // Pins host memory (whole pages), so that copies can use it. Takes seconds for a hundred
  // gigabytes. `progress` may be null. It is called on the calling thread. After an error nothing
  // is pinned. Call UnpinHost with the same `host` before the memory is freed.
  virtual absl::Status PinHost(void* host, int64_t bytes, const PinProgress& progress) = 0;
  // Undoes PinHost or ShareHostPin for `host`, or does nothing if neither was called for it.
  // REQUIRES: no copy of this memory is queued.
  virtual void UnpinHost(void* host) = 0;
  // Tells this device that another device of this process has pinned this host memory. That pins
  // the memory for all devices of the process. Call UnpinHost on this device too, before the other
  // device unpins the memory.
  virtual void ShareHostPin(void* host, int64_t bytes) {
    (void)host;
    (void)bytes;
  }

  // Returns true if kernels can read pinned host memory directly, at the host's address.
  virtual bool KernelsReadHost() const { return false; }

  // CopyToDevice and CopyToHost queue a copy on the stream. All of [host, host + bytes) must lie in
  // one range that PinHost or ShareHostPin was given, or a GPU returns FailedPrecondition. Both
  // memories must stay valid until the copy is done.
  virtual absl::Status CopyToDevice(Stream& stream, void* device, const void* host,
                                    int64_t bytes) = 0;
  virtual absl::Status CopyToHost(Stream& stream, void* host, const void* device,
                                  int64_t bytes) = 0;

  // Upload and Download copy from and to any host memory. They return when the copy is done, which
  // is after all work queued on the stream before, and do nothing if `bytes` is 0. They are meant
  // for small or rare copies.
  virtual absl::Status Upload(Stream& stream, void* device, const void* host, int64_t bytes) = 0;
  virtual absl::Status Download(Stream& stream, void* host, const void* device, int64_t bytes) = 0;

  // ---- Kernels and profiling ----

  // Returns the device's kernels, which live as long as it.
  virtual Kernels& kernels() = 0;

  // Names the work that the calling thread queues until the matching EndRange, for an attached
  // profiler. `name` must stay valid until then.
  virtual void BeginRange(const char* name) { (void)name; }
  virtual void EndRange() {}
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_DEVICE_H_
