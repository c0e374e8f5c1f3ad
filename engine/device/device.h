// The interface of a device: memory, in-order streams, events, copies and kernels.
//
// Lifetimes: the device must outlive its streams, events and memory.
//
// Errors are ResourceExhausted for lack of memory and Internal for other failures of the device,
// unless said otherwise. If IsDeviceLost (device_lost.h) is true for an error, this process can no
// longer use the device.
//
// Thread safety: one thread at a time may use a Stream. Any thread may wait for an Event and call
// the other methods of Device.
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
  // Returns the stream for libraries that queue work of their own: a cudaStream_t, or null on
  // devices without such libraries.
  virtual void* native_handle() const { return nullptr; }
};

// A point in a stream, set by Device::Record.
class Event {
 public:
  virtual ~Event() = default;
};

// One block of device memory, freed with the object. Its content is undefined at first.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual void* data() const = 0;
  virtual int64_t bytes() const = 0;
};

// The purpose of a stream. A stream for kernels takes device memory
// (KernelSizes::StreamWorkspaceBytes); a stream for copies alone does not.
enum class StreamUse { kCompute, kCopy };

// Receives the bytes that PinHost has pinned so far. If it returns an error, PinHost stops and
// returns that error.
using PinProgress = std::function<absl::Status(int64_t done)>;

class Device {
 public:
  virtual ~Device() = default;

  // Describes the device for people.
  virtual std::string Describe() const = 0;
  // Names the processor and libraries that determine how results are rounded. On devices that
  // return the same text, the same work gives the same bits. Otherwise the bits may differ.
  virtual std::string Arithmetic(AttentionChoice attention) const = 0;
  // Returns FailedPrecondition, with the reason, if `attention` requires a library that is not
  // there.
  virtual absl::Status CheckAttention(AttentionChoice attention) const {
    if (attention != AttentionChoice::kLibrary) return absl::OkStatus();
    return absl::FailedPreconditionError("this device has attention of its own alone");
  }
  // Returns a text that no other device in the world has, or "" if the device has none.
  virtual std::string Uuid() const { return ""; }
  // Returns the nearest NUMA node of host memory, -1 if it is not known or none is nearer.
  virtual int numa_node() const { return -1; }
  // Returns the size of the device's own memory, free or not; 0 if it uses host memory.
  virtual int64_t MemoryBytes() const { return 0; }
  // Returns the bytes that Allocate can give now, or nullopt if the device uses host memory.
  virtual absl::StatusOr<std::optional<int64_t>> FreeBytes() = 0;
  // Returns the part of FreeBytes that must stay free. Libraries take more memory when their
  // kernels are first used.
  virtual int64_t ReserveBytes() const { return 0; }
  // Allocates one block. It is meant for few large blocks and not for use within a step. Returns
  // ResourceExhausted, with the bytes, if there is not enough. REQUIRES: bytes > 0.
  virtual absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t bytes) = 0;
  // Create an empty stream, and an event that has not been recorded.
  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream(StreamUse use) = 0;
  virtual absl::StatusOr<std::unique_ptr<Event>> CreateEvent() = 0;

  // Sets the event to the point after all work queued on the stream so far.
  virtual absl::Status Record(Stream& stream, Event& event) = 0;
  // Makes work that is queued on the stream from now on start after the event. Does not block the
  // caller. REQUIRES: the event has been recorded.
  virtual absl::Status Wait(Stream& stream, Event& event) = 0;
  // Blocks the calling thread until the work before the event is done. REQUIRES: the event has been
  // recorded.
  virtual absl::Status Synchronize(Event& event) = 0;
  // Returns whether the work before the event is done. REQUIRES: the event has been recorded.
  virtual absl::StatusOr<bool> Done(Event& event) = 0;
  // Returns the seconds between two events. REQUIRES: the work before both is done.
  virtual absl::StatusOr<double> ElapsedSeconds(Event& start, Event& end) = 0;

  // Pins host memory (whole pages), so that copies can use it. Takes seconds for a hundred
  // gigabytes. `progress` may be null; the calling thread calls it. After an error nothing is
  // pinned. Call UnpinHost with the same `host` before the memory is freed.
  virtual absl::Status PinHost(void* host, int64_t bytes, const PinProgress& progress) = 0;
  virtual void UnpinHost(void* host) = 0;
  // Says that another device of this process has pinned this host memory, which pins it for all of
  // them. Call UnpinHost here too, before the other device unpins it.
  virtual void ShareHostPin(void* host, int64_t bytes) {
    (void)host;
    (void)bytes;
  }

  // Returns true if kernels can read pinned host memory directly, at the host's address.
  virtual bool KernelsReadHost() const { return false; }

  // Queue a copy on the stream. `host` must be pinned, or a GPU returns FailedPrecondition, and
  // must stay valid until the copy is done.
  virtual absl::Status CopyToDevice(Stream& stream, void* device, const void* host,
                                    int64_t bytes) = 0;
  virtual absl::Status CopyToHost(Stream& stream, void* host, const void* device,
                                  int64_t bytes) = 0;

  // Copy from and to any host memory and return when the copy is done, after all work queued on the
  // stream before. They are meant for small or rare copies.
  virtual absl::Status Upload(Stream& stream, void* device, const void* host, int64_t bytes) = 0;
  virtual absl::Status Download(Stream& stream, void* host, const void* device, int64_t bytes) = 0;

  // Returns the device's kernels, which live as long as it.
  virtual Kernels& kernels() = 0;

  // Names the work that the calling thread queues until the matching EndRange, for an attached
  // profiler. `name` must outlive the range.
  virtual void BeginRange(const char* name) { (void)name; }
  virtual void EndRange() {}
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_DEVICE_H_
