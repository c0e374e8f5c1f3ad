// A device that does what the cpu device does, and on which a test can hold lanes and refuse
// memory.
#ifndef MEGATRAIN_TESTS_ENGINE_TRAINER_WATCHED_DEVICE_H_
#define MEGATRAIN_TESTS_ENGINE_TRAINER_WATCHED_DEVICE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/device/device.h"

namespace megatrain {

class WatchedDevice : public Device {
 public:
  explicit WatchedDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {}

  // Called on a lane's thread before an operation of this name runs. May be set while no operation
  // is in flight.
  std::function<void(const std::string& name)> begins;
  // Returns the error of an allocation, or OK. May be null.
  std::function<absl::Status()> allocates;

  std::string Describe() const override { return device_->Describe(); }
  std::string Arithmetic(AttentionChoice attention) const override {
    return device_->Arithmetic(attention);
  }
  absl::StatusOr<std::optional<int64_t>> FreeBytes() override { return device_->FreeBytes(); }
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t bytes) override {
    if (allocates) {
      if (const absl::Status refused = allocates(); !refused.ok()) return refused;
    }
    return device_->Allocate(bytes);
  }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(StreamUse use) override {
    return device_->CreateStream(use);
  }
  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override { return device_->CreateEvent(); }
  absl::Status Record(Stream& stream, Event& event) override {
    return device_->Record(stream, event);
  }
  absl::Status Wait(Stream& stream, Event& event) override { return device_->Wait(stream, event); }
  absl::Status Synchronize(Event& event) override { return device_->Synchronize(event); }
  absl::StatusOr<bool> Done(Event& event) override { return device_->Done(event); }
  absl::StatusOr<double> ElapsedSeconds(Event& start, Event& end) override {
    return device_->ElapsedSeconds(start, end);
  }
  absl::Status PinHost(void* host, int64_t bytes, const PinProgress& progress) override {
    return device_->PinHost(host, bytes, progress);
  }
  void UnpinHost(void* host) override { device_->UnpinHost(host); }
  bool KernelsReadHost() const override { return device_->KernelsReadHost(); }
  absl::Status CopyToDevice(Stream& stream, void* device, const void* host,
                            int64_t bytes) override {
    return device_->CopyToDevice(stream, device, host, bytes);
  }
  absl::Status CopyToHost(Stream& stream, void* host, const void* device, int64_t bytes) override {
    return device_->CopyToHost(stream, host, device, bytes);
  }
  absl::Status Upload(Stream& stream, void* device, const void* host, int64_t bytes) override {
    return device_->Upload(stream, device, host, bytes);
  }
  absl::Status Download(Stream& stream, void* host, const void* device, int64_t bytes) override {
    return device_->Download(stream, host, device, bytes);
  }
  Kernels& kernels() override { return device_->kernels(); }
  void BeginRange(const char* name) override {
    if (begins) begins(name);
  }

 private:
  const std::unique_ptr<Device> device_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_TRAINER_WATCHED_DEVICE_H_
