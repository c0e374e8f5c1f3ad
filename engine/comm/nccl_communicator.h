// Communicators of ranks that have a GPU each, over NCCL. Operations on device memory are queued on
// the stream like kernels; those on host memory go through another communicator of the same ranks.
//
// ReduceScatter sends parts from rank to rank, in pieces and in the two levels of RankGrid, and
// adds them with the device's own kernel, because NCCL does not promise the order of its sums.
// AllGather uses NCCL's own operations, and NCCL chooses the routes between machines.
//
// Errors: as in communicator.h, and Internal for those of NCCL. An error of a queued operation
// comes from a later call, or from status(): a stream whose operation was ended goes on with
// undefined data. DeadlineExceeded does not name the ranks that did not come, because NCCL does not
// tell them. AllGather and ReduceScatter do not compare sizes: ranks that call them with different
// ones wait as long as NcclPatience lets them, or get undefined data.
#ifndef MEGATRAIN_ENGINE_COMM_NCCL_COMMUNICATOR_H_
#define MEGATRAIN_ENGINE_COMM_NCCL_COMMUNICATOR_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/comm/communicator.h"
#include "engine/comm/nccl_api.h"
#include "engine/device/device.h"

namespace megatrain {

// How long a rank waits for the others before they count as gone.
struct NcclPatience {
  absl::Duration meeting;  // in making a communicator, and in ending it
  // In queueing an operation, and once more in its run on the GPU, from when its turn has come.
  absl::Duration operation;
};

// Makes a communicator of the ranks of `bootstrap`, which carries the operations on host memory. A
// caller that keeps a share of it must call no operation of it while the result lives. All ranks
// must call this. `api` (LoadNccl), `device` and `scratch` must outlive the communicator. `scratch`
// is device memory for ReduceScatter and has the same size on all ranks. NCCL takes device memory
// of its own besides. `group_ranks` is as in RankGrid. Returns these errors, which reach the other
// ranks too, and those of `device` and `bootstrap`:
// - InvalidArgument: the scratch is smaller than NcclScratchBytesMin.
// - FailedPrecondition: two ranks have the same GPU, or scratch of different sizes.
// - DeadlineExceeded: other ranks did not come within NcclPatience::meeting.
// - Internal: NCCL's own errors.
absl::StatusOr<std::unique_ptr<Communicator>> CreateNcclCommunicator(
    std::shared_ptr<Communicator> bootstrap, NcclApi* api, Device* device, void* scratch,
    int64_t scratch_bytes, const NcclPatience& patience, int group_ranks = 1);

// Returns the bytes of scratch with which ReduceScatter uses links well: about 64 MiB, and at least
// 1 MiB for each other rank. 0 for one rank.
int64_t NcclScratchBytes(int ranks);
// Returns the least bytes of scratch that CreateNcclCommunicator accepts.
int64_t NcclScratchBytesMin(int ranks);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_COMM_NCCL_COMMUNICATOR_H_
