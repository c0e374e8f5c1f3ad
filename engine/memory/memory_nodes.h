// On which NUMA nodes of the machine a range of memory lies.
#ifndef MEGATRAIN_ENGINE_MEMORY_MEMORY_NODES_H_
#define MEGATRAIN_ENGINE_MEMORY_MEMORY_NODES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace megatrain {

// Sets nodes[i] to the node of the page at pages[i], or below 0 where there is none; false if that
// cannot be learnt.
using PageNodes = std::function<bool(absl::Span<void* const> pages, absl::Span<int> nodes)>;

// The kernel's answer (move_pages). False e.g. in a container that may not ask. Reads the pages.
bool KernelPageNodes(absl::Span<void* const> pages, absl::Span<int> nodes);

// A value. Knows nothing when made without arguments.
//
// Thread safety: const methods from any thread.
class MemoryNodes {
 public:
  // What is asked about: a page of every so many bytes.
  static constexpr int64_t kPieceBytes = int64_t{2} << 20;

  MemoryNodes() = default;
  // Of [begin, begin + bytes), as it lies now: the pages are to have been touched. Pages that the
  // kernel moves later are not followed.
  MemoryNodes(const void* begin, int64_t bytes, const PageNodes& ask = KernelPageNodes);

  // -1: not known, or not of the range.
  int NodeOf(const void* address) const;
  // More than one.
  bool several() const;
  // "96 GiB on NUMA node 0, 32 GiB on NUMA node 1". Empty unless several.
  std::string Describe() const;

 private:
  struct Run {
    const char* begin = nullptr;
    int node = -1;
  };
  std::vector<Run> runs_;  // by address; each reaches to the next, the last one to end_
  const char* end_ = nullptr;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MEMORY_MEMORY_NODES_H_
