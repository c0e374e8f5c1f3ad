// Exchanges bytes and statuses in host memory between ranks, by the operations of a Communicator. A
// null communicator is that of a rank alone. All ranks must call the first three functions in the
// same order; the other two may be called by one rank.
#ifndef MEGATRAIN_ENGINE_COMM_EXCHANGE_H_
#define MEGATRAIN_ENGINE_COMM_EXCHANGE_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/comm/communicator.h"

namespace megatrain {

// Calls visit(rank, bytes) on every rank, for each rank in turn with the bytes that it gave as
// `own`. `bytes` is valid during the call. `visit` must not change the memory of `own`. Needs
// memory for the bytes of one rank at a time. Returns the errors of the communicator, after which
// `visit` may have been called for some ranks only.
absl::Status ExchangeBytes(Communicator* communicator, absl::string_view own,
                           absl::FunctionRef<void(int rank, absl::string_view bytes)> visit);

// Returns the `own` of rank 0 on every rank, or the errors of the communicator.
absl::StatusOr<std::string> FromFirstRank(Communicator* communicator, absl::string_view own);

// Returns the same on every rank: OK if all ranks gave OK, else the error of the lowest rank that
// has one, with the rank's number and its machine's name ("rank 2 on host7: ..."), marked by
// FoundByAll. If IsDiskFull holds for that error, it holds for the result. Also returns the errors
// of the communicator. A rank alone gets `own` back.
absl::Status Agree(Communicator* communicator, const absl::Status& own);

// Marks `error` as one that every rank has found alike, and whose message names the ranks itself.
// AbortAll leaves such an error as it is.
absl::Status FoundByAll(absl::Status error);

// Ends the operations of all ranks with `own`, an error of this rank. Unless FoundByAll has marked
// the error, its message gets the rank's number and the machine's name, and marks such as those of
// IsDiskFull and IsDeviceLost are lost. Returns the first error that ended the operations. A rank
// alone gets `own` back. Any thread of any rank may call this. REQUIRES: !own.ok().
absl::Status AbortAll(Communicator* communicator, const absl::Status& own);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_COMM_EXCHANGE_H_
