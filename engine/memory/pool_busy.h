// Marks and recognizes errors of a job that lacks host memory which other jobs hold.
#ifndef MEGATRAIN_ENGINE_MEMORY_POOL_BUSY_H_
#define MEGATRAIN_ENGINE_MEMORY_POOL_BUSY_H_

#include <string_view>

#include "absl/status/status.h"

namespace megatrain {

// Makes a ResourceExhausted status for which IsPoolBusy is true.
absl::Status PoolBusyError(std::string_view message);
// Returns true if `status` is one that PoolBusyError made, or a copy of it: the host pool is large
// enough, so that waiting for other jobs may help. A new status with the same code and message is
// not recognized.
bool IsPoolBusy(const absl::Status& status);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MEMORY_POOL_BUSY_H_
