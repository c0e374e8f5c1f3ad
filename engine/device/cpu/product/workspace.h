// The buffers and matrix products that a task (a block of a kernel's parallel loop) needs besides
// its operands. They are kept for later tasks, because making them takes time.
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

// The buffers and products of one task. Thread safety: one thread at a time may use an object.
class Workspace {
 public:
  // The number of buffers, each of which has a slot 0 to kSlots - 1. Buffers that are used at the
  // same time must have different slots. Slot 0 belongs to Multiply.
  static constexpr int kSlots = 9;

  // Returns the slot's buffer, of at least `bytes` bytes, aligned to 64 bytes. Its content is
  // undefined. The buffer is valid until the next call for the slot or the end of this object.
  // Throws std::bad_alloc if there is no memory.
  void* Buffer(int slot, int64_t bytes);
  // Returns Buffer for `count` floats.
  float* Floats(int slot, int64_t count) {
    return static_cast<float*>(Buffer(slot, count * static_cast<int64_t>(sizeof(float))));
  }

  // Computes a product, with the arguments of Product::Run. A Product is created when its shape is
  // first used. If there are 512 already, they are all dropped before, and created anew when used
  // again. Returns Internal if oneDNN cannot make or run the product. Throws std::bad_alloc if
  // there is no memory for its scratch. REQUIRES: the calling thread has called UseOneOpenMpThread,
  // as WorkspacePool::Take does.
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

// Lends workspaces to tasks. Thread safety: any thread may call Take and destroy leases.
class WorkspacePool {
 public:
  // Holds a workspace, and gives it back to the pool when destroyed.
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

  // Lends the workspace that was given back last, because its memory may still be in the cache, or
  // a new workspace if all are lent. Calls UseOneOpenMpThread (product.h), so the calling thread
  // must be the one that uses the workspace. This pool must outlive the lease.
  Lease Take();

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> idle_ ABSL_GUARDED_BY(mutex_);
};

// Keeps the first error that the tasks of a loop report. Thread safety: all methods may be called
// from any thread.
class FirstError {
 public:
  // Keeps `status` if it is an error and none is kept yet.
  void Update(const absl::Status& status) {
    if (status.ok()) return;
    MutexLock lock(&mutex_);
    if (status_.ok()) status_ = status;
  }
  // Returns the error that is kept, or OK if there is none.
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
