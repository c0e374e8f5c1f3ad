// Tells which processes of a job write their checkpoints into one directory, and checks that they
// see the same one and can write in it.
//
// The check makes empty files in the directory, named shared-, 32 hex digits, - and a rank, and
// removes them when it ends. RemoveLeftovers removes those of a process that died.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_SHARED_DIRECTORY_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_SHARED_DIRECTORY_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/base/file.h"
#include "engine/comm/communicator.h"
#include "engine/model/tile.h"

namespace megatrain {

// The ranks that share a directory: all of a job or, where each machine has a directory of its own,
// those of a machine. One of them leads, and does what is done once for the directory.
struct DirectoryRanks {
  Communicator* communicator = nullptr;  // of all ranks; null for a process alone
  int begin = 0, end = 1;                // the ranks of this rank's directory
  int part = 0, parts = 1;               // the number of this directory, and how many there are
  // By tile, what those ranks hold together; empty if they hold all.
  std::vector<HeldElements> held = {};

  int rank() const { return communicator == nullptr ? 0 : communicator->rank(); }
  int ranks() const { return communicator == nullptr ? 1 : communicator->ranks(); }
  bool leads() const { return rank() == begin; }
  bool Shares(int other) const { return begin <= other && other < end; }
  // Returns nullopt if they hold the whole tile.
  std::optional<HeldElements> HeldOf(int tile) const {
    return held.empty() ? std::nullopt : std::optional(held[static_cast<size_t>(tile)]);
  }
};

// Returns the ranks of one directory for all. `communicator` may be null.
DirectoryRanks AllInOneDirectory(Communicator* communicator);

// Returns the ranks of a directory for each machine; `machines` names that of each rank. Leaves
// `held` empty. Returns FailedPrecondition, the same on all ranks, if those of a machine are not
// consecutive.
absl::StatusOr<DirectoryRanks> OneDirectoryForEachMachine(Communicator* communicator,
                                                          absl::Span<const std::string> machines);

// How long a rank looks for what the leading one has made: some shared file systems tell of a new
// name seconds late.
inline constexpr absl::Duration kSharedWait = absl::Seconds(10);

// Checks that the ranks of a directory see it, and those of others do not. All ranks must call it,
// with the path that the directory has for them; where a rank leads, it must be there. Returns the
// same on all. Returns FailedPrecondition, naming the directory, the ranks and their machines, if a
// rank does not see within `patience` what its leading one has made there, sees what that of
// another directory has made, or cannot write. A full disk (IsDiskFull) and Cancelled of `files`
// are returned as they are, with the rank; so are the errors of the communicator. Does nothing for
// a process alone.
absl::Status CheckIsShared(const std::string& directory, const DirectoryRanks& ranks,
                           FileSystem* files, absl::Duration patience = kSharedWait);

// Returns true for the names of what CheckIsShared makes.
bool IsOfSharedCheck(absl::string_view name);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_SHARED_DIRECTORY_H_
