// What the engine needs of a device: memory, in-order streams, events, copies, kernels. Thin on
// purpose.
//
// Thread safety: a Stream is used by one thread at a time (its lane's); events may be waited for by
// any thread; the rest of Device may be called from any thread.
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
};

// A point in a stream.
class Event {
 public:
  virtual ~Event() = default;
};

// One block of device memory, freed with the object.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual void* data() const = 0;
  virtual int64_t bytes() const = 0;
};

// What a stream is for: kernels need memory of the device's beside the arena, copies do not.
enum class StreamUse { kCompute, kCopy };

// How far PinHost is; an error ends it.
using PinProgress = std::function<absl::Status(int64_t done)>;

class Device {
 public:
  virtual ~Device() = default;

  virtual std::string Describe() const = 0;
  // What decides how its results are rounded: processor and libraries. Where this is the same, the
  // same work gives the same bits; where it is another, it may not.
  virtual std::string Arithmetic(AttentionChoice attention) const = 0;
  // FailedPrecondition, with the reason: attention is to be a library's, and there is none.
  virtual absl::Status CheckAttention(AttentionChoice attention) const {
    if (attention != AttentionChoice::kLibrary) return absl::OkStatus();
    return absl::FailedPreconditionError("this device has attention of its own alone");
  }
  // The node of host memory that is nearest to it; -1: not known, or none is nearer.
  virtual int numa_node() const { return -1; }
  // Memory that Allocate can give now. Nothing: the device lies in host memory.
  virtual absl::StatusOr<std::optional<int64_t>> FreeBytes() = 0;
  // Of it, what is to be left: libraries take more as their kernels are first used.
  virtual int64_t ReserveBytes() const { return 0; }
  // The only allocation: the arena, before the first step. ResourceExhausted names the bytes.
  virtual absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t bytes) = 0;
  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream(StreamUse use) = 0;
  virtual absl::StatusOr<std::unique_ptr<Event>> CreateEvent() = 0;

  // Marks the point after all work queued on the stream so far.
  virtual absl::Status Record(Stream& stream, Event& event) = 0;
  // Work queued on the stream from now on starts after the event. REQUIRES: the event has been
  // recorded.
  virtual absl::Status Wait(Stream& stream, Event& event) = 0;
  // Blocks the calling thread until the event has passed.
  virtual absl::Status Synchronize(Event& event) = 0;
  // Seconds between two passed events.
  virtual absl::StatusOr<double> ElapsedSeconds(Event& start, Event& end) = 0;

  // Makes host memory, whole pages, one that copies can be made from and to. Takes seconds for a
  // hundred gigabytes; `progress` (may be null) is called with the bytes done, and an error from it
  // ends the pinning and is returned. On an error nothing is pinned. UnpinHost before the memory
  // goes.
  virtual absl::Status PinHost(void* host, int64_t bytes, const PinProgress& progress) = 0;
  virtual void UnpinHost(void* host) = 0;

  // Whether kernels can read pinned host memory where it lies, at the host's address.
  virtual bool KernelsReadHost() const { return false; }

  // Host memory is pinned and must stay valid until the stream has passed the copy.
  virtual absl::Status CopyToDevice(Stream& stream, void* device, const void* host,
                                    int64_t bytes) = 0;
  virtual absl::Status CopyToHost(Stream& stream, void* host, const void* device,
                                  int64_t bytes) = 0;

  // Of any host memory, and done when it returns: for what is small or rare. On a stream that has
  // kernels, after what is queued there.
  virtual absl::Status Upload(Stream& stream, void* device, const void* host, int64_t bytes) = 0;
  virtual absl::Status Download(Stream& stream, void* host, const void* device, int64_t bytes) = 0;

  virtual Kernels& kernels() = 0;

  // Names what the calling thread queues from here to the matching EndRange, for a profiler that is
  // attached. `name` must outlive the range.
  virtual void BeginRange(const char* name) { (void)name; }
  virtual void EndRange() {}
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_DEVICE_H_
