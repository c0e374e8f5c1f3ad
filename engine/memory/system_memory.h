// Finds out how much host memory this process may still take.
#ifndef MEGATRAIN_ENGINE_MEMORY_SYSTEM_MEMORY_H_
#define MEGATRAIN_ENGINE_MEMORY_SYSTEM_MEMORY_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace megatrain {

// The files of the kernel that are read; tests substitute their own.
struct SystemMemoryPaths {
  std::string meminfo = "/proc/meminfo";
  std::string cgroup = "/proc/self/cgroup";             // the control groups of this process
  std::string cgroup_root = "/sys/fs/cgroup";           // the tree (v2), or its parent (v1)
  std::string huge_pages = "/sys/kernel/mm/hugepages";  // has a directory for each size
};

// Returns the bytes of huge pages of this size that the kernel has set aside, that are free, and
// that are not promised to a mapping that has yet to touch them. Returns 0 if there are none or if
// the kernel does not report them. MemAvailable does not count these bytes.
int64_t FreeHugePageBytes(int64_t page_bytes, const SystemMemoryPaths& paths = {});

// Returns the smaller of the kernel's MemAvailable and what the tightest control group leaves (v1
// or v2; this process's own or one above it). A group's inactive file cache counts as free, because
// the kernel reclaims it before it refuses memory. Control groups that cannot be read are ignored.
// Returns NotFound or DataLoss if meminfo cannot be read or has no MemAvailable.
absl::StatusOr<int64_t> AvailableMemoryBytes(const SystemMemoryPaths& paths = {});

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MEMORY_SYSTEM_MEMORY_H_
