#include "engine/memory/host_pool.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"
#include "engine/memory/pool_busy.h"

namespace megatrain {
namespace {

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Large enough that a progress line costs nothing, small enough that it moves: 0.1 s of zeroing.
constexpr int64_t kTouchChunkBytes = int64_t{256} << 20;

// In this order.
constexpr int64_t kPageChoices[] = {kGiantPageBytes, kHugePageBytes, kSmallPageBytes};

// Touches every page, from several threads. Returns Cancelled if told so.
absl::Status Touch(const HostPoolOptions& options, int64_t capacity, PageMapping& pages) {
  // Threads that touch the same page wait for each other.
  const int64_t chunk_bytes = std::max(kTouchChunkBytes, pages.page_bytes());
  const int64_t chunks = (capacity + chunk_bytes - 1) / chunk_bytes;
  std::atomic<int64_t> next{0};
  Mutex mutex;
  int64_t touched = 0;
  absl::Status status;
  const auto work = [&] {
    for (int64_t chunk = next++; chunk < chunks; chunk = next++) {
      if (options.cancelled && options.cancelled()) {
        MutexLock lock(&mutex);
        status = absl::CancelledError("host pool: the reservation was abandoned");
        return;
      }
      const int64_t begin = chunk * chunk_bytes;
      const int64_t end = std::min(begin + chunk_bytes, capacity);
      absl::Status taken = pages.Touch(begin, end);
      MutexLock lock(&mutex);
      if (!status.ok()) return;
      if (!taken.ok()) {
        status = std::move(taken);
        return;
      }
      touched += end - begin;
      if (options.progress) options.progress(touched, capacity);
    }
  };
  std::vector<std::thread> workers;
  const int64_t threads = std::min<int64_t>(options.touch_threads, chunks);
  for (int64_t i = 1; i < threads; ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  return status;
}

// Asks for pages of the nodes of `options`. Returns what DescribePages says of it, for example
// " on NUMA node 0", and sets `placed` to the kernel's answer.
std::string Place(const HostPoolOptions& options, int64_t capacity, PageMapping& pages,
                  absl::Status* placed) {
  const std::vector<int>& nodes = options.numa_nodes;
  if (nodes.empty()) return "";
  const auto count = static_cast<int64_t>(nodes.size());
  int64_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t end =
        i + 1 == count ? capacity : RoundUp(capacity / count * (i + 1), pages.page_bytes());
    if (begin < end) placed->Update(pages.PreferNode(nodes[static_cast<size_t>(i)], begin, end));
    begin = end;
  }
  const std::string name =
      absl::StrCat(nodes.size() == 1 ? "NUMA node " : "NUMA nodes ", absl::StrJoin(nodes, " and "));
  if (placed->ok()) return absl::StrCat(" on ", name);
  return absl::StrCat(", not placed on ", name, " (", std::string(placed->message()), ")");
}

}  // namespace

const char* HostKindName(HostKind kind) {
  switch (kind) {
    case HostKind::kTiles:
      return "tiles";
    case HostKind::kGradientSlabs:
      return "gradient slabs";
    case HostKind::kStash:
      return "stash";
    case HostKind::kBatches:
      return "batches";
    case HostKind::kOther:
      return "other";
  }
  return "unknown";
}

HostLease& HostLease::operator=(HostLease&& other) noexcept {
  if (this == &other) return *this;
  Release();
  pool_ = std::exchange(other.pool_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  kind_ = other.kind_;
  return *this;
}

void HostLease::Release() {
  if (pool_ != nullptr && data_ != nullptr) pool_->Return(data_, bytes_, kind_);
  pool_ = nullptr;
  data_ = nullptr;
  bytes_ = 0;
}

bool HostPool::MayLieIn(int64_t page_bytes, int64_t capacity) {
  return page_bytes == kPageBytes || capacity / 16 >= page_bytes;
}

absl::StatusOr<std::unique_ptr<HostPool>> HostPool::Create(const HostPoolOptions& options) {
  constexpr int64_t kCapacityMax = std::numeric_limits<int64_t>::max() / 2;
  if (options.capacity < 0 || options.capacity > kCapacityMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("host pool: capacity ", FormatCount(options.capacity), " is out of range"));
  }
  const int64_t capacity = RoundUp(options.capacity, kPageBytes);
  if (capacity == 0) return std::unique_ptr<HostPool>(new HostPool({}, 0, {}, "", {}));

  absl::Status refused;
  for (const int64_t page_bytes : kPageChoices) {
    const bool small = page_bytes == kPageBytes;
    // Pages that are set aside are taken for good or not at all: those that are touched later could
    // be missing then.
    if (!small && (!options.huge_pages || options.touch_threads == 0)) continue;
    if (!MayLieIn(page_bytes, capacity)) continue;
    absl::StatusOr<PageMapping> pages = PageMapping::Map(capacity, page_bytes);
    if (!pages.ok()) {
      refused = pages.status();
      continue;
    }
    if (small && options.huge_pages) pages->AllowHugePages();
    absl::Status placed;
    std::string placement = Place(options, capacity, *pages, &placed);
    if (options.touch_threads > 0) refused = Touch(options, capacity, *pages);
    if (absl::IsCancelled(refused)) return refused;
    if (!refused.ok()) continue;
    MemoryNodes nodes;
    if (options.touch_threads > 0) nodes = MemoryNodes(pages->data(), capacity);
    // A node that has too little gives what it has.
    if (nodes.several()) {
      if (placed.ok()) placement.clear();
      absl::StrAppend(&placement, ", ", nodes.Describe());
    }
    return std::unique_ptr<HostPool>(new HostPool(*std::move(pages), capacity, options.numa_nodes,
                                                  std::move(placement), std::move(nodes)));
  }
  return absl::ResourceExhaustedError(absl::StrCat("host pool: ", std::string(refused.message())));
}

HostPool::~HostPool() { assert(free_bytes() == capacity_ && "a lease outlives its pool"); }

std::string HostPool::DescribePages() const {
  const char* const size = pages_.page_bytes() == kGiantPageBytes            ? "1 GiB pages"
                           : pages_.page_bytes() == HostPool::kHugePageBytes ? "2 MiB pages"
                                                                             : "small pages";
  return absl::StrCat(size, placement_);
}

int64_t HostPool::FindOffset(int64_t bytes, int node) const {
  if (numa_nodes_.size() > 1) {
    const auto upper = numa_nodes_.begin() + static_cast<int64_t>(numa_nodes_.size() + 1) / 2;
    const bool is_upper = std::find(upper, numa_nodes_.end(), node) != numa_nodes_.end();
    return is_upper ? HighestOffset(bytes) : LowestOffset(bytes, kPageBytes);
  }
  return bytes >= kLargeLeaseBytes ? LowestOffset(bytes, kHugePageBytes) : HighestOffset(bytes);
}

int64_t HostPool::LowestOffset(int64_t bytes, int64_t alignment) const {
  for (const auto& [offset, size] : free_) {
    const int64_t aligned = RoundUp(offset, alignment);
    if (aligned + bytes <= offset + size) return aligned;
  }
  return -1;
}

int64_t HostPool::HighestOffset(int64_t bytes) const {
  for (auto block = free_.rbegin(); block != free_.rend(); ++block) {
    if (block->second >= bytes) return block->first + block->second - bytes;
  }
  return -1;
}

absl::StatusOr<HostLease> HostPool::Lease(HostKind kind, int64_t bytes, int node) {
  assert(bytes >= 0);
  HostLease lease;
  lease.kind_ = kind;
  if (bytes == 0) return lease;
  // Beyond the capacity no rounding is needed, and none can overflow.
  const int64_t taken = bytes > capacity_ ? bytes : LeaseBytes(bytes);
  MutexLock lock(&mutex_);
  const int64_t offset = taken > capacity_ ? -1 : FindOffset(taken, node);
  if (offset < 0) {
    const std::string text =
        absl::StrCat("host pool: no room for ", HostKindName(kind), ": asked ", FormatBytes(bytes),
                     ", free ", FormatBytes(Free()), ", largest free block ",
                     FormatBytes(LargestFreeBlock()), ", capacity ", FormatBytes(capacity_));
    return taken > capacity_ ? absl::ResourceExhaustedError(text) : PoolBusyError(text);
  }
  const auto block = std::prev(free_.upper_bound(offset));
  const int64_t block_begin = block->first, block_end = block->first + block->second;
  free_.erase(block);
  if (offset > block_begin) free_.emplace(block_begin, offset - block_begin);
  if (offset + taken < block_end) free_.emplace(offset + taken, block_end - offset - taken);
  in_use_[static_cast<int>(kind)] += taken;
  lease.pool_ = this;
  lease.data_ = base_ + offset;
  lease.bytes_ = bytes;
  return lease;
}

void HostPool::Return(void* data, int64_t bytes, HostKind kind) {
  const int64_t taken = LeaseBytes(bytes);
  int64_t begin = static_cast<char*>(data) - base_;
  int64_t end = begin + taken;
  MutexLock lock(&mutex_);
  const auto after = free_.lower_bound(begin);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == begin) {
      begin = before->first;
      free_.erase(before);
    }
  }
  if (after != free_.end() && after->first == end) {
    end += after->second;
    free_.erase(after);
  }
  free_.emplace(begin, end - begin);
  in_use_[static_cast<int>(kind)] -= taken;
}

int64_t HostPool::Free() const {
  int64_t total = 0;
  for (const auto& [offset, size] : free_) total += size;
  return total;
}

int64_t HostPool::LargestFreeBlock() const {
  int64_t largest = 0;
  for (const auto& [offset, size] : free_) largest = std::max(largest, size);
  return largest;
}

int64_t HostPool::free_bytes() const {
  MutexLock lock(&mutex_);
  return Free();
}

int64_t HostPool::largest_free_block() const {
  MutexLock lock(&mutex_);
  return LargestFreeBlock();
}

int64_t HostPool::bytes_in_use(HostKind kind) const {
  MutexLock lock(&mutex_);
  return in_use_[static_cast<int>(kind)];
}

}  // namespace megatrain
