// CollectiveCall describes a rank's call of a Communicator's operation. Communicators of threads
// and of processes compare the calls of all ranks before the operation begins, because all ranks
// must call the same operation with the same sizes.
#ifndef MEGATRAIN_ENGINE_COMM_COLLECTIVE_CALL_H_
#define MEGATRAIN_ENGINE_COMM_COLLECTIVE_CALL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace megatrain {

enum class Operation : int32_t { kAllGather, kReduceScatter, kGatherValues, kBroadcast, kBarrier };

// Processes send this to each other as it lies in memory.
struct CollectiveCall {
  Operation operation = Operation::kBarrier;
  int32_t root = 0;    // of Broadcast
  int64_t number = 0;  // counts the operations of the communicator
  int64_t bytes = 0;   // of all parts together; of GatherValues, those of one rank
  uint64_t cuts = 0;   // a hash of the parts' cuts; 0 without parts

  bool operator==(const CollectiveCall&) const = default;
  // Returns, for example, "Broadcast of 16 bytes from rank 1 (operation 3)".
  std::string Describe() const;
};

// Makes the call of an operation on parts that are cut at `cuts`, which count elements of
// `element_bytes` bytes. The caller sets `number`. Returns InvalidArgument if `cuts` are not ranks
// + 1 numbers in ascending order, none of them negative. Equal numbers are in order.
absl::StatusOr<CollectiveCall> PartsCall(Operation operation, absl::Span<const int64_t> cuts,
                                         int ranks, int64_t element_bytes);

// Returns FailedPrecondition, naming both ranks, if `call` of `rank` is not equal to `other` of
// `other_rank`.
absl::Status CheckSameCall(int rank, const CollectiveCall& call, int other_rank,
                           const CollectiveCall& other);

// Returns "rank 3" or "ranks 1, 3".
std::string RankList(const std::vector<int>& ranks);

// The four functions below make the errors with which a communicator itself ends operations.
//
// DeadlineExceeded: rank `rank` waited for `missing` in `call` until the deadline.
absl::Status MissingRanksError(int rank, const CollectiveCall& call,
                               const std::vector<int>& missing, absl::Duration deadline);
// DeadlineExceeded: rank `rank` heard nothing of `missing` for `deadline`.
absl::Status SilentRanksError(int rank, const std::vector<int>& missing, absl::Duration deadline);
// Unavailable: rank `rank` has destroyed its communicator, and others wait for it in `call`.
absl::Status RankLeftError(int rank, const CollectiveCall& call);
// The code of `error`: a message between `rank` and `lost` has failed with `error`.
absl::Status LostRankError(int rank, int lost, const absl::Status& error);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_COMM_COLLECTIVE_CALL_H_
