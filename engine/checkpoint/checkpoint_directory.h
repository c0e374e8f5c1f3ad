// A directory of checkpoints: what their names mean, which are there, which is the newest good one.
//
//   step-00000100            a whole checkpoint; more digits where eight do not suffice
//   step-00000100.tmp        one being written, or being removed: a leftover of a process that died
//   step-00000100.replaced   moved aside for the moment in which a new one takes its name
//   step-00000300.replaced-by-step-00000150
//                            discarded with the checkpoint of step 150: it is moved aside before
//                            that one takes its name, and removed after
// Anything else in the directory is foreign: never read, never removed.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_DIRECTORY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/file.h"

namespace megatrain {

inline constexpr char kUnfinishedSuffix[] = ".tmp";

// "step-00000100". REQUIRES: step >= 0.
std::string StepDirectoryName(int64_t step);
// The step of a name that StepDirectoryName makes, else nothing.
std::optional<int64_t> ParseStepDirectoryName(absl::string_view name);

// The name of step `step`'s directory while it is moved aside for the checkpoint of step `by`,
// which may be the same step.
std::string ReplacedDirectoryName(int64_t step, int64_t by);

// The steps that have a directory beneath `directory`, highest first, good or not. A missing
// directory is empty; one that cannot be read is an error.
absl::StatusOr<std::vector<int64_t>> ListSteps(const std::string& directory,
                                               FileSystem* files = PosixFileSystem());

// Checkpoint directories beneath `directory` (those with a manifest), newest (highest step) first.
// A missing directory is empty.
absl::StatusOr<std::vector<std::string>> ListCheckpoints(const std::string& directory,
                                                         FileSystem* files = PosixFileSystem());

struct DamagedCheckpoint {
  int64_t step = 0;
  std::string what;  // names the file and what is wrong with it
};

// The newest checkpoint beneath `directory` that verifies; nothing if there is none. Damaged ones
// that are newer are added to *damaged: a caller that gets nothing but has some there should not
// begin anew in that directory without being told to. A checkpoint that cannot be read (an I/O
// error, no permission, no descriptor left) or that another version wrote is not damaged: its error
// is returned, and no older one is looked at.
absl::StatusOr<std::optional<std::string>> FindNewestVerified(
    const std::string& directory, std::vector<DamagedCheckpoint>* damaged,
    FileSystem* files = PosixFileSystem());

// To be called before a directory is searched: removes what a process that died left unfinished.
// A checkpoint that was moved aside gets its name back if the new one had not taken its own yet,
// and is removed if it had. Returns a line for each, for the log. One process at a time may use a
// directory.
absl::StatusOr<std::vector<std::string>> RemoveLeftovers(const std::string& directory,
                                                         FileSystem* files = PosixFileSystem());

// Everything in the step directory `path` is a file that a checkpoint has: as its manifest lists
// them, or by their names where there is no readable manifest. FailedPrecondition names what is
// foreign.
absl::Status CheckHoldsOnlyCheckpointFiles(const std::string& path,
                                           FileSystem* files = PosixFileSystem());

// Removes step directory `path` so that a crash on the way leaves a leftover and no damaged
// checkpoint. REQUIRES: CheckHoldsOnlyCheckpointFiles.
absl::Status RemoveStepDirectory(const std::string& path, FileSystem* files = PosixFileSystem());

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
