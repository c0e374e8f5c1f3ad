// The buffers and matrix products that a task of a cpu kernel needs besides its operands. They are
// kept for later tasks, because making them takes time.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_PRODUCT_WORKSPACE_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_PRODUCT_WORKSPACE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/device/cpu/product/product.h"

namespace megatrain {

// The buffers and products of one task. Thread safety: one thread at a time.
class Workspace {
 public:
  // The number of buffers. Buffers that are used at the same time must have different slots. Slot 0
  // is the products' scratch.
  static constexpr int kSlots = 9;

  // Returns the slot's buffer, of at least `bytes`, aligned to 64, with undefined content. It is
  // valid until the next call for the slot. Throws std::bad_alloc if there is no memory.
  void* Buffer(int slot, int64_t bytes);
  float* Floats(int slot, int64_t count) {
    return static_cast<float*>(Buffer(slot, count * static_cast<int64_t>(sizeof(float))));
  }

  // Runs a product, which is created when its shape is first used. Returns the errors of Product.
  // The arguments are those of Product::Run.
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

// Lends workspaces to tasks. Thread safety: all methods may be called from any thread.
class WorkspacePool {
 public:
  // Holds a workspace and returns it to the pool when destroyed.
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

  // Leases a workspace, preferably the one returned last, whose memory is still in the cache. Makes
  // a new one if all are leased. Calls UseOneOpenMpThread (product.h). The pool must outlive the
  // lease.
  Lease Take();

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> idle_ ABSL_GUARDED_BY(mutex_);
};

// Collects the first error of a loop's tasks. Thread safety: all methods may be called from any
// thread.
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

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_PRODUCT_WORKSPACE_H_
