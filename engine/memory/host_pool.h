// HostPool is the host memory of a process, reserved once. Tiles, gradient slabs, stashes and
// batches are leases on it. The pool outlives jobs, so that the next job need not touch its pages
// again.
//
// A lease takes whole pages: LeaseBytes(bytes). Leases whose LeaseBytes are 256 MiB and more are
// aligned to 2 MiB (huge pages, which costs at most 2 / 256 = 0.8%) and taken from the lowest
// address that fits. Smaller leases are aligned to pages and taken from the top. So a pool without
// leases grants any list of leases, in any order, if their LeaseBytes add up to its capacity at
// most: the large ones stack up from the bottom without a gap, the small ones down from the top.
// Freed blocks are joined with free neighbors.
//
// A pool on several NUMA nodes has an equal part of its pages on each, in their order. Its leases
// are near a node as far as they can: they stack up from the bottom for the first half of the nodes
// and down from the top for the second, which are the two sockets of most machines, and what a half
// lacks comes from the other. They are aligned to pages alone, so that they leave no gap either.
//
// Thread safety: all methods may be called from any thread.
//
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
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/memory/memory_nodes.h"
#include "engine/memory/page_mapping.h"

namespace megatrain {

// The uses of host memory (engine/pipeline/buffers.h), which are accounted separately.
enum class HostKind { kTiles, kGradientSlabs, kStash, kBatches, kOther };
inline constexpr int kHostKinds = 5;
// Returns "tiles", "gradient slabs", "stash", "batches" or "other".
const char* HostKindName(HostKind kind);

class HostPool;

// A block of the pool, given back when the lease is destroyed. Its content is undefined when it is
// granted. REQUIRES: the pool outlives the lease.
class HostLease {
 public:
  HostLease() = default;
  HostLease(HostLease&& other) noexcept { *this = std::move(other); }
  HostLease& operator=(HostLease&& other) noexcept;
  HostLease(const HostLease&) = delete;
  HostLease& operator=(const HostLease&) = delete;
  ~HostLease() { Release(); }

  void* data() const { return data_; }      // null if empty
  int64_t bytes() const { return bytes_; }  // as requested
  HostKind kind() const { return kind_; }
  // Returns true if the lease holds memory. One of 0 bytes does not.
  explicit operator bool() const { return pool_ != nullptr; }
  // Gives the block back to the pool now; the lease is empty then.
  void Release();

 private:
  friend class HostPool;
  HostPool* pool_ = nullptr;
  void* data_ = nullptr;
  int64_t bytes_ = 0;
  HostKind kind_ = HostKind::kOther;
};

struct HostPoolOptions {
  int64_t capacity = 0;  // in bytes, rounded up to a page
  // Take the largest pages that are available: 1 GiB or 2 MiB pages that are set aside, else small
  // pages that the kernel may join to huge ones. If false, take small pages.
  bool huge_pages = true;
  // The NUMA nodes from which pages come as long as these have any: an equal part from each, in
  // this order, which should be by socket, as the kernel numbers them. Empty: from any node. A
  // kernel that refuses is no error; DescribePages tells of it.
  std::vector<int> numa_nodes;
  // The number of threads that touch every page before Create returns. Then no step pays for page
  // faults, and a lack of memory is found at once. 0: pages are taken at their first use, and huge
  // pages that are set aside are not used.
  int touch_threads = 1;
  // Called while pages are touched, from one thread at a time, with the bytes touched so far. The
  // count begins again if pages of one size are refused and smaller ones are tried. May be null.
  std::function<void(int64_t touched, int64_t capacity)> progress;
  // Called now and then while pages are touched, from several threads at once. Create is abandoned
  // once it returns true. May be null.
  std::function<bool()> cancelled;
};

class HostPool {
 public:
  static constexpr int64_t kPageBytes = kSmallPageBytes;
  static constexpr int64_t kHugePageBytes = megatrain::kHugePageBytes;
  static constexpr int64_t kLargeLeaseBytes = int64_t{256} << 20;

  // Returns true if a pool of `capacity` bytes may use pages of `page_bytes`: if a page is at most
  // 1/16 of the pool, because the unused part of the last page is lost, or if it is a small page.
  static bool MayLieIn(int64_t page_bytes, int64_t capacity);

  // Reserves the pool. Returns ResourceExhausted if the kernel refuses the memory, InvalidArgument
  // if the capacity is negative or 2^62 and more, and Cancelled if `cancelled` returned true.
  static absl::StatusOr<std::unique_ptr<HostPool>> Create(const HostPoolOptions& options);
  // REQUIRES: no lease is left.
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  // Returns the bytes that a lease of `bytes` takes: whole pages, and whole huge pages from 256 MiB
  // on.
  static constexpr int64_t LeaseBytes(int64_t bytes) {
    const int64_t page = bytes >= kLargeLeaseBytes ? kHugePageBytes : kPageBytes;
    return (bytes + page - 1) / page * page;
  }

  // Returns a block of `bytes` bytes. Returns ResourceExhausted if no free block has room for it;
  // the message names the kind, the bytes requested, the free bytes, the largest free block and the
  // capacity. IsPoolBusy (pool_busy.h) is true for the error if the capacity has room: other leases
  // are in the way. A lease of 0 bytes has no memory and takes nothing. In a pool on several NUMA
  // nodes the block is in the half of `node`, if that is one of them and its half has room.
  // REQUIRES: bytes >= 0.
  absl::StatusOr<HostLease> Lease(HostKind kind, int64_t bytes, int node = -1);

  // The start of the whole reservation of capacity() bytes, which a device can pin; null if that is
  // 0.
  void* data() const { return base_; }
  // Describes the pages for people: "1 GiB pages on NUMA node 0".
  std::string DescribePages() const;
  // The NUMA nodes on which the pages were when they were touched; unknown if they were not.
  const MemoryNodes& nodes() const { return nodes_; }
  int64_t capacity() const { return capacity_; }
  int64_t free_bytes() const;
  int64_t largest_free_block() const;
  // Returns the sum of LeaseBytes of the leases of this kind.
  int64_t bytes_in_use(HostKind kind) const;

 private:
  friend class HostLease;
  HostPool(PageMapping pages, int64_t capacity, std::vector<int> numa_nodes, std::string placement,
           MemoryNodes nodes)
      : pages_(std::move(pages)),
        numa_nodes_(std::move(numa_nodes)),
        placement_(std::move(placement)),
        nodes_(std::move(nodes)),
        base_(pages_.data()),
        capacity_(capacity) {
    if (capacity > 0) free_.emplace(0, capacity);
  }
  void Return(void* data, int64_t bytes, HostKind kind);
  int64_t Free() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t LargestFreeBlock() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns the offset for a lease of `bytes` (whole pages), or -1 if there is no room.
  int64_t FindOffset(int64_t bytes, int node) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t LowestOffset(int64_t bytes, int64_t alignment) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int64_t HighestOffset(int64_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const PageMapping pages_;
  const std::vector<int> numa_nodes_;  // HostPoolOptions::numa_nodes
  const std::string placement_;        // " on NUMA node 0", why not there, or ""
  const MemoryNodes nodes_;
  char* const base_;  // aligned to a huge page
  const int64_t capacity_;
  mutable Mutex mutex_;
  std::map<int64_t, int64_t> free_ ABSL_GUARDED_BY(mutex_);  // offset -> bytes
  std::array<int64_t, kHostKinds> in_use_ ABSL_GUARDED_BY(mutex_) = {};
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MEMORY_HOST_POOL_H_
