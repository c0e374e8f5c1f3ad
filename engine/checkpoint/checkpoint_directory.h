// A directory of checkpoints: what their names mean, which are there, which is the newest good one.
//
//   step-00000100            a whole checkpoint; more digits where eight do not suffice
//   step-00000100.tmp        one being written, or being removed: a leftover of a process that died
//   step-00000100.replaced   moved aside for the moment in which a new one takes its name
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
inline constexpr char kReplacedSuffix[] = ".replaced";

// "step-00000100". REQUIRES: step >= 0.
std::string StepDirectoryName(int64_t step);
// The step of a name that StepDirectoryName makes, else nothing.
std::optional<int64_t> ParseStepDirectoryName(absl::string_view name);

// The steps that have a directory beneath `directory`, highest first, good or not. A missing
// directory is empty.
absl::StatusOr<std::vector<int64_t>> ListSteps(const std::string& directory,
                                               FileSystem* files = PosixFileSystem());

// Checkpoint directories beneath `directory` (those with a manifest), newest (highest step) first.
// A missing directory is empty.
absl::StatusOr<std::vector<std::string>> ListCheckpoints(const std::string& directory,
                                                         FileSystem* files = PosixFileSystem());

// The newest checkpoint beneath `directory` that verifies; nothing if there is none. Bad ones that
// are newer are named in *skipped, "PATH: what is wrong": a caller that gets nothing but has
// skipped some should not begin anew in that directory without being told to.
absl::StatusOr<std::optional<std::string>> FindNewestVerified(
    const std::string& directory, std::vector<std::string>* skipped,
    FileSystem* files = PosixFileSystem());

// To be called before a directory is searched: removes what a process that died left unfinished,
// and gives a checkpoint that was moved aside its name back. Returns a line for each, for the log.
// One process at a time may use a directory.
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
