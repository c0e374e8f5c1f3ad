// Communicators of ranks that are processes, started by mpirun or srun, on one machine or several.
// Buffers lie in host memory: ranks with a cpu device call all operations, and those with a GPU
// only the ones on host memory (nccl_communicator.h).
//
// Parts go from rank to rank in pieces of bounded size, in the two levels of RankGrid, which work
// on different pieces at once. The ranks sum themselves, because MPI does not promise the order of
// its reductions. MPI itself moves messages within a machine through shared memory, in one copy
// where the kernel lets it (CMA).
//
// Errors: as in communicator.h, and
// - FailedPrecondition, if the ranks do not call the same operation with the same sizes;
// - Unavailable, if a rank has destroyed its communicators while another waits for it;
// - Internal, for errors of MPI.
// After an error the process should end soon: MPI is not finalized, and may still read or write
// memory of the operation that had the error.
#ifndef MEGATRAIN_ENGINE_COMM_MPI_MPI_COMMUNICATOR_H_
#define MEGATRAIN_ENGINE_COMM_MPI_MPI_COMMUNICATOR_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/comm/communicator.h"

namespace megatrain {

struct MpiOptions {
  // A process counts as gone if nothing was heard of it for this long.
  absl::Duration deadline = absl::Seconds(20);
  // The path of libmegatrain-mpi.so. MpiLibraryPath() if it is empty.
  std::string library = "";
  // Names the machine of this process. Processes that give the same text share a machine. If all
  // leave it empty, all count as one machine.
  std::string machine = "";
};

// Starts MPI and returns the communicators of this process, none of which is null. A process may
// call it once. It waits, without a deadline, until all processes of the job have called it. The
// destruction of the last of the communicators waits for those of the other ranks (~MpiSession).
// The process must ignore SIGPIPE, because MPI writes to ranks that are gone. Returns the errors of
// MpiSession::Open and of communicator.h.
absl::StatusOr<CommunicatorSet> CreateMpiCommunicators(const MpiOptions& options);

// Returns the bytes of host memory that a communicator takes at its first ReduceScatter and keeps.
int64_t MpiScratchBytes(int ranks);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_COMM_MPI_MPI_COMMUNICATOR_H_
