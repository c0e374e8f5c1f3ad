// How much host memory this process may still take.
#ifndef MEGATRAIN_ENGINE_MEMORY_SYSTEM_MEMORY_H_
#define MEGATRAIN_ENGINE_MEMORY_SYSTEM_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace megatrain {

// Where the kernel says it; tests put their own files there.
struct SystemMemoryPaths {
  std::string meminfo = "/proc/meminfo";
  std::string cgroup = "/proc/self/cgroup";             // which control groups this process is in
  std::string cgroup_root = "/sys/fs/cgroup";           // v2: the tree; v1: memory/ beneath it
  std::string huge_pages = "/sys/kernel/mm/hugepages";  // a directory a size
};

// Bytes in huge pages of this size that are set aside, free and not promised to a mapping that has
// yet to touch them; they do not count as MemAvailable.
// 0 where the kernel has none.
int64_t FreeHugePageBytes(int64_t page_bytes, const SystemMemoryPaths& paths = {});

// The smaller of the kernel's MemAvailable and what the tightest control group (v2 or v1, this
// process's own or one above it) leaves. A group's inactive file cache counts as free: the kernel
// reclaims it before it refuses. Control groups that cannot be read limit nothing.
// NotFound or DataLoss if meminfo has no MemAvailable.
absl::StatusOr<int64_t> AvailableMemoryBytes(const SystemMemoryPaths& paths = {});

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MEMORY_SYSTEM_MEMORY_H_
