// A device whose work takes no time, and a runner of operations that calls a function.
#ifndef MEGATRAIN_TESTS_ENGINE_PIPELINE_FAKE_DEVICE_H_
#define MEGATRAIN_TESTS_ENGINE_PIPELINE_FAKE_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/device/device.h"
#include "engine/device/reference_kernels.h"
#include "engine/pipeline/executor.h"

namespace megatrain {

class FakeStream : public Stream {};
class FakeEvent : public Event {
 public:
  std::atomic<int> record{0};  // which of the device's records was the last of this event
};

class FakeDevice : public Device {
 public:
  std::string Describe() const override { return "fake"; }
  std::string Arithmetic(AttentionChoice) const override { return "none"; }
  absl::StatusOr<std::optional<int64_t>> FreeBytes() override { return std::nullopt; }
  absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(int64_t) override {
    return absl::ResourceExhaustedError("no memory");
  }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(StreamUse) override {
    return std::make_unique<FakeStream>();
  }
  absl::StatusOr<std::unique_ptr<Event>> CreateEvent() override {
    return std::make_unique<FakeEvent>();
  }
  absl::Status Record(Stream&, Event& event) override {
    static_cast<FakeEvent&>(event).record = ++records_;
    return absl::OkStatus();
  }
  absl::Status Wait(Stream&, Event& event) override {
    last_waited = static_cast<FakeEvent&>(event).record.load();
    return absl::OkStatus();
  }
  absl::Status Synchronize(Event& event) override {
    last_synchronized = static_cast<FakeEvent&>(event).record.load();
    return synchronized;
  }
  absl::StatusOr<bool> Done(Event&) override { return true; }
  absl::StatusOr<double> ElapsedSeconds(Event&, Event&) override { return 0.25; }
  absl::Status CopyToDevice(Stream&, void*, const void*, int64_t) override {
    return absl::OkStatus();
  }
  absl::Status CopyToHost(Stream&, void*, const void*, int64_t) override {
    return absl::OkStatus();
  }
  absl::Status PinHost(void*, int64_t, const PinProgress&) override { return absl::OkStatus(); }
  void UnpinHost(void*) override {}
  absl::Status Upload(Stream&, void*, const void*, int64_t) override { return absl::OkStatus(); }
  absl::Status Download(Stream&, void*, const void*, int64_t) override { return absl::OkStatus(); }
  Kernels& kernels() override { return kernels_; }

  absl::Status synchronized;  // what Synchronize returns
  // The records that Wait and Synchronize were last called for, from 1; 0: they were not called.
  std::atomic<int> last_waited{0}, last_synchronized{0};

 private:
  std::atomic<int> records_{0};
  ReferenceKernels kernels_;
};

class FunctionRunner : public OpRunner {
 public:
  explicit FunctionRunner(std::function<absl::Status(const Op&)> run) : run_(std::move(run)) {}
  absl::Status Run(const Op& op, Stream*) override { return run_(op); }

 private:
  const std::function<absl::Status(const Op&)> run_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_PIPELINE_FAKE_DEVICE_H_
