// Communicators of ranks that are threads of one process. Buffers lie in host memory: ranks with a
// cpu device call all operations, and those with a GPU only the ones on host memory
// (nccl_communicator.h). A rank reads the buffers of the others directly and sums its own part, so
// that an operation takes no memory.
//
// Errors: as in communicator.h, and
// - FailedPrecondition, if the ranks do not call the same operation with the same sizes;
// - Unavailable, if a rank destroys its communicator while others wait in an operation of it, or
//   before they begin one.
// An operation that all ranks have begun with the same sizes ends without error, also after an
// abort: the buffers of a rank stay in use until every other rank has read them.
#ifndef MEGATRAIN_ENGINE_COMM_THREAD_COMMUNICATOR_H_
#define MEGATRAIN_ENGINE_COMM_THREAD_COMMUNICATOR_H_

#include <vector>

#include "absl/time/time.h"
#include "engine/comm/communicator.h"

namespace megatrain {

// Returns the communicators of each rank, by its number. An abort of one ends the operations of
// all. An operation ends with DeadlineExceeded if a rank has not begun it `deadline` after another
// rank did; absl::InfiniteDuration() means no limit. REQUIRES: ranks > 0.
std::vector<CommunicatorSet> CreateThreadCommunicators(int ranks, absl::Duration deadline);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_COMM_THREAD_COMMUNICATOR_H_
