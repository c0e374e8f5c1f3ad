// Finds out on which NUMA nodes a range of memory is.
#ifndef MEGATRAIN_ENGINE_MEMORY_MEMORY_NODES_H_
#define MEGATRAIN_ENGINE_MEMORY_MEMORY_NODES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace megatrain {

// Sets nodes[i] to the node of the page at pages[i], or to a negative number if it has none. The
// two spans have the same size. Returns false if the nodes cannot be found out.
using PageNodes = std::function<bool(absl::Span<void* const> pages, absl::Span<int> nodes)>;

// A PageNodes that reads a byte of each page and asks the kernel (move_pages). Returns false for
// example in a container that may not make this call.
bool KernelPageNodes(absl::Span<void* const> pages, absl::Span<int> nodes);

// A copyable map from addresses to NUMA nodes. One that is default-constructed knows no address.
//
// Thread safety: const methods may be called from any thread.
class MemoryNodes {
 public:
  // One page in each piece of this size is examined.
  static constexpr int64_t kPieceBytes = int64_t{2} << 20;

  MemoryNodes() = default;
  // Examines [begin, begin + bytes) as it is now, by one call of `ask`. Pages that the kernel moves
  // later are not followed. REQUIRES: the pages have been touched.
  MemoryNodes(const void* begin, int64_t bytes, const PageNodes& ask = KernelPageNodes);

  // Returns -1 if the node is not known or `address` is outside the range.
  int NodeOf(const void* address) const;
  // Returns true if the range is on more than one node; an unknown node counts as one.
  bool several() const;
  // Returns "96.00 GiB on NUMA node 0, 32.00 GiB on NUMA node 1", or "" unless several().
  std::string Describe() const;

 private:
  struct Run {
    const char* begin = nullptr;
    int node = -1;
  };
  std::vector<Run> runs_;  // by address; each ends where the next begins, the last at end_
  const char* end_ = nullptr;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MEMORY_MEMORY_NODES_H_
