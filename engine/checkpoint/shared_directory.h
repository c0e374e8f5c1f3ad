// Tells which processes of a job write their checkpoints into one directory, and checks that they
// see the same one and can write in it.
//
// The check makes empty files in the directory, named "shared-<32 hex digits>-<rank>", and removes
// them when it ends. RemoveLeftovers removes those of a process that died.
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
  // By tile, the elements that the ranks [begin, end) hold together; empty if they hold all.
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

// Returns the ranks where all ranks of a job share one directory. `communicator` may be null for a
// process alone, and must outlive the result.
DirectoryRanks AllInOneDirectory(Communicator* communicator);

// Returns the ranks where each machine has a directory of its own. machines[r] names the machine of
// rank r. Leaves `held` empty, which the caller must set if there are several parts. Returns
// FailedPrecondition, the same on all ranks, if the ranks of a machine are not consecutive.
// `communicator` must outlive the result.
absl::StatusOr<DirectoryRanks> OneDirectoryForEachMachine(Communicator* communicator,
                                                          absl::Span<const std::string> machines);

// How long a rank looks for what the leading one has made: some shared file systems tell of a new
// name seconds late.
inline constexpr absl::Duration kSharedWait = absl::Seconds(10);

// Checks that the ranks of a directory see it and can write in it, and that the ranks of other
// directories do not see it. All ranks must call it, with the path that their directory has for
// them. The directory must exist for the rank that leads in it. Does nothing for a process alone.
//
// Returns the same on all ranks. Returns FailedPrecondition, naming the directory, the ranks and
// their machines, if a rank does not see within `patience` the file that its leading rank has made,
// sees the file of another directory's leading rank, or cannot write. A full disk (IsDiskFull) and
// Cancelled of `files` are returned as they are, with the rank; so are the errors of the
// communicator.
absl::Status CheckIsShared(const std::string& directory, const DirectoryRanks& ranks,
                           FileSystem* files, absl::Duration patience = kSharedWait);

// Returns true for the names of what CheckIsShared makes.
bool IsOfSharedCheck(absl::string_view name);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_SHARED_DIRECTORY_H_
