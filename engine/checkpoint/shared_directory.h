// Checks that the processes of a job see one directory and can write in it, as checkpoints need.
//
// The check makes empty files in the directory, named shared-, 32 hex digits, - and a rank, and
// removes them when it ends. RemoveLeftovers removes those of a process that died.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_SHARED_DIRECTORY_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_SHARED_DIRECTORY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/base/file.h"
#include "engine/comm/communicator.h"

namespace megatrain {

// How long a rank looks for what rank 0 has made: some shared file systems tell of a new name
// seconds late.
inline constexpr absl::Duration kSharedWait = absl::Seconds(10);

// All ranks must call it, with the path that the directory has for them; on rank 0 it must be
// there. Returns the same on all. Returns FailedPrecondition, naming the directory, the ranks and
// their machines, if a rank does not see within `patience` what rank 0 has made there, or cannot
// write. A full disk (IsDiskFull) and Cancelled of `files` are returned as they are, with the rank;
// so are the errors of the communicator.
absl::Status CheckIsShared(const std::string& directory, Communicator& communicator,
                           FileSystem* files, absl::Duration patience = kSharedWait);

// Returns true for the names of what CheckIsShared makes.
bool IsOfSharedCheck(absl::string_view name);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_SHARED_DIRECTORY_H_
