// What one task of a kernel needs beside its operands: aligned buffers that are kept for the next
// task, and the products it has used before.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_WORKSPACE_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_WORKSPACE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/device/cpu/product.h"

namespace megatrain {

// Thread safety: one thread at a time.
class Workspace {
 public:
  // Buffers that are alive together have different slots; slot 0 is the products' scratch.
  static constexpr int kSlots = 9;

  // At least `bytes`, aligned to 64; contents are undefined. Valid until the slot's next call.
  void* Buffer(int slot, int64_t bytes);
  float* Floats(int slot, int64_t count) {
    return static_cast<float*>(Buffer(slot, count * static_cast<int64_t>(sizeof(float))));
  }

  // Runs a product, made at its shape's first use. out += if shape.accumulate.
  absl::Status Multiply(const ProductShape& shape, const void* a, const void* b, void* out,
                        const void* bias = nullptr);

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  std::array<std::unique_ptr<void, Free>, kSlots> buffers_;
  std::array<int64_t, kSlots> bytes_ = {};
  std::unordered_map<ProductShape, std::unique_ptr<Product>, absl::Hash<ProductShape>> products_;
};

// Thread safety: all methods.
class WorkspacePool {
 public:
  class Lease {
   public:
    Lease(WorkspacePool* pool, std::unique_ptr<Workspace> workspace);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Workspace* operator->() const { return workspace_.get(); }
    Workspace& operator*() const { return *workspace_; }

   private:
    WorkspacePool* const pool_;
    std::unique_ptr<Workspace> workspace_;
  };

  // The last one given back is the next one leased: its memory is in the cache. There are never
  // more than there were leases at a time. The pool must outlive the lease.
  Lease Take();

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> idle_ ABSL_GUARDED_BY(mutex_);
};

// The first error of a loop's tasks. Thread safety: all methods.
class FirstError {
 public:
  void Update(const absl::Status& status) {
    if (status.ok()) return;
    MutexLock lock(&mutex_);
    if (status_.ok()) status_ = status;
  }
  absl::Status status() {
    MutexLock lock(&mutex_);
    return status_;
  }

 private:
  Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_WORKSPACE_H_
