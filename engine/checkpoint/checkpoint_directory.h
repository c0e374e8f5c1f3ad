// Names, lists and removes the checkpoints in a directory. A directory may hold
//   step-00000100            a whole checkpoint; the number has more digits if eight do not suffice
//   step-00000100.tmp        a checkpoint being written or removed, or left so by a process that
//                            died or could not remove it
//   step-00000100.replaced   moved aside for the moment in which a new checkpoint of the step takes
//                            its name
//   step-00000300.replaced-by-step-00000150
//                            a discarded checkpoint: it is moved aside before the checkpoint of
//                            step 150 takes its name, and removed afterwards
//   shared-0123456789abcdef0123456789abcdef-1
//                            an empty file of CheckIsShared (shared_directory.h), or left so by a
//                            process that died
//   .lock                    the file of LockDirectory; it is neither read nor removed here
// Everything else in the directory is foreign and is neither read nor removed.
//
// `files` is used during a call only. Errors of `files` are returned as they are, besides those
// that a function names.
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

// Returns the name of the directory of step `step`: "step-00000100" for 100. REQUIRES: step >= 0.
std::string StepDirectoryName(int64_t step);
// Returns the step of a name that StepDirectoryName makes, nullopt for any other name.
std::optional<int64_t> ParseStepDirectoryName(absl::string_view name);

// Returns the name of the directory of step `step` while it is moved aside for the checkpoint of
// step `by`, which may be the same step.
std::string ReplacedDirectoryName(int64_t step, int64_t by);

// Returns the steps that have a directory in `directory`, highest first, without looking into them.
// Returns none if `directory` does not exist.
absl::StatusOr<std::vector<int64_t>> ListSteps(const std::string& directory,
                                               FileSystem* files = PosixFileSystem());

// Returns the paths of the step directories in `directory` that have a manifest, highest step
// first. They are not verified. Returns none if `directory` does not exist.
absl::StatusOr<std::vector<std::string>> ListCheckpoints(const std::string& directory,
                                                         FileSystem* files = PosixFileSystem());

// Cleans up after a process that died. Call it before a directory is searched. Unfinished
// checkpoints and the files of CheckIsShared are removed. A checkpoint that was moved aside gets
// its name back if its successor had not been renamed yet. It is removed otherwise, under the name
// step-XXXXXXXX.tmp if that is free, so that it never gets its name back. A leftover that holds a
// directory other than additional_chat_templates is left alone, and so is what cannot be removed.
// Returns a line for the log about each of these. Does nothing if `directory` does not exist.
// REQUIRES: no other process uses `directory` (see directory_lock.h).
absl::StatusOr<std::vector<std::string>> RemoveLeftovers(const std::string& directory,
                                                         FileSystem* files = PosixFileSystem());

// Checks that the step directory `path` holds only files of a checkpoint. These are the files that
// its manifest lists or, if there is no readable manifest, files with the names that checkpoints
// use. Returns FailedPrecondition with the name of a foreign entry.
absl::Status CheckHoldsOnlyCheckpointFiles(const std::string& path,
                                           FileSystem* files = PosixFileSystem());

// Removes the step directory `path`. Renames it to `path`.tmp first, in place of what has that
// name, so that a crash leaves a leftover and not a damaged checkpoint. REQUIRES:
// CheckHoldsOnlyCheckpointFiles(path) is OK, and `path` does not end with "/".
absl::Status RemoveStepDirectory(const std::string& path, FileSystem* files = PosixFileSystem());

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
