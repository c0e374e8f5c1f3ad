// The one reservation of host memory that a process owns. Tiles, gradient slabs, stashes and
// batches are leases on it; it outlives jobs, so that a second job starts without touching pages
// again.
//
// A lease takes whole pages: LeaseBytes(bytes). Leases of 256 MiB and more are aligned to 2 MiB
// (huge pages, which cost them 2 / 256 = 0.8% at most) and taken from the lowest address that fits;
// smaller ones are page aligned and taken from the top. So a pool without leases grants any list of
// leases, in any order, whose LeaseBytes add up to its capacity at most: the large ones stack up
// from the bottom without a gap, the small ones down from the top. Freed blocks join their
// neighbours.
//
// Thread safety: all methods may be called from any thread.
// Invariants: free blocks and leases are disjoint and cover the pool; no two free blocks touch;
// free_bytes() + the sum of bytes_in_use(kind) == capacity().
#ifndef MEGATRAIN_ENGINE_MEMORY_HOST_POOL_H_
#define MEGATRAIN_ENGINE_MEMORY_HOST_POOL_H_

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/memory/memory_nodes.h"
#include "engine/memory/page_mapping.h"

namespace megatrain {

// What host memory is for; the accounting is by kind.
enum class HostKind { kTiles, kGradientSlabs, kStash, kBatches, kOther };
inline constexpr int kHostKinds = 5;
// "tiles", "gradient slabs", "stash", "batches", "other".
const char* HostKindName(HostKind kind);

class HostPool;

// A block of the pool; goes back when destroyed. The memory's content is undefined when granted.
// REQUIRES: the pool outlives it.
class HostLease {
 public:
  HostLease() = default;
  HostLease(HostLease&& other) noexcept { *this = std::move(other); }
  HostLease& operator=(HostLease&& other) noexcept;
  HostLease(const HostLease&) = delete;
  HostLease& operator=(const HostLease&) = delete;
  ~HostLease() { Release(); }

  void* data() const { return data_; }      // null if empty
  int64_t bytes() const { return bytes_; }  // as asked
  HostKind kind() const { return kind_; }
  explicit operator bool() const { return pool_ != nullptr; }
  // Gives the block back now; the lease is empty then.
  void Release();

 private:
  friend class HostPool;
  HostPool* pool_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  HostKind kind_ = HostKind::kOther;
};

struct HostPoolOptions {
  int64_t capacity = 0;  // bytes, rounded up to a page
  // Large pools take the largest pages that are to be had: 1 GiB, 2 MiB, small ones that the kernel
  // may join to huge ones. False: small ones.
  bool huge_pages = true;
  // Pages come from this node of the machine's memory as long as it has any; -1: from anywhere.
  int numa_node = -1;
  // Threads that touch every page before Create returns, so that no step pays for page faults and a
  // machine without the memory says so at once. 0: pages are taken when first used.
  int touch_threads = 1;
  // Called while touching, from one thread at a time, with the bytes touched so far.
  std::function<void(int64_t touched, int64_t capacity)> progress;
  // Asked now and then while touching, from several threads; true abandons it. May be null.
  std::function<bool()> cancelled;
};

class HostPool {
 public:
  static constexpr int64_t kPageBytes = kSmallPageBytes;
  static constexpr int64_t kHugePageBytes = megatrain::kHugePageBytes;
  static constexpr int64_t kLargeLeaseBytes = int64_t{256} << 20;

  // Whether a pool of `capacity` bytes takes pages of `page_bytes` where they are set aside: what
  // its last page has too much is lost, and must not be more than 1/16 of it.
  static bool MayLieIn(int64_t page_bytes, int64_t capacity);

  // ResourceExhausted if the kernel refuses the reservation, InvalidArgument if capacity < 0,
  // Cancelled.
  static absl::StatusOr<std::unique_ptr<HostPool>> Create(const HostPoolOptions& options);
  // REQUIRES: no lease is left.
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  // What a lease of `bytes` takes: whole pages, whole huge pages from 256 MiB on.
  static constexpr int64_t LeaseBytes(int64_t bytes) {
    const int64_t page = bytes >= kLargeLeaseBytes ? kHugePageBytes : kPageBytes;
    return (bytes + page - 1) / page * page;
  }

  // ResourceExhausted names kind, asked, free, largest free block and capacity in bytes.
  // REQUIRES: bytes >= 0. A lease of 0 bytes has no memory and takes nothing.
  absl::StatusOr<HostLease> Lease(HostKind kind, int64_t bytes);

  // The whole reservation, capacity() bytes: for a device to pin.
  void* data() const { return base_; }
  // Of the pages it lies in, for people: "1 GiB pages on NUMA node 0".
  std::string DescribePages() const;
  // Where the pages lay when they were touched; knows nothing if they were not.
  const MemoryNodes& nodes() const { return nodes_; }
  int64_t capacity() const { return capacity_; }
  int64_t free_bytes() const;
  int64_t largest_free_block() const;
  // LeaseBytes of the leases of this kind.
  int64_t bytes_in_use(HostKind kind) const;

 private:
  friend class HostLease;
  HostPool(PageMapping pages, int64_t capacity, std::string placement, MemoryNodes nodes)
      : pages_(std::move(pages)),
        placement_(std::move(placement)),
        nodes_(std::move(nodes)),
        base_(pages_.data()),
        capacity_(capacity) {
    if (capacity > 0) free_.emplace(0, capacity);
  }
  void Return(void* data, int64_t bytes, HostKind kind);
  int64_t Free() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t LargestFreeBlock() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The offset that a lease of `bytes` (whole pages) gets, or -1.
  int64_t FindOffset(int64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const PageMapping pages_;
  const std::string placement_;  // " on NUMA node 0", why it is not, or empty
  const MemoryNodes nodes_;
  char* const base_;  // aligned to a huge page
  const int64_t capacity_;
  mutable Mutex mutex_;
  std::map<int64_t, int64_t> free_ ABSL_GUARDED_BY(mutex_);  // offset -> bytes
  std::array<int64_t, kHostKinds> in_use_ ABSL_GUARDED_BY(mutex_) = {};
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MEMORY_HOST_POOL_H_
