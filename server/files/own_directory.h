// Measures and removes directories of jobs. STATE/jobs/ID belongs to the daemon. The job's own
// directory in it (job_files.h) belongs to the job's submitter, who may change anything there at
// any time. The daemon therefore enters it only with the submitter's rights, which do not reach the
// daemon's own files wherever a name there leads. The submitter's account need not exist any more.
//
// Thread safety: all functions may be called from any thread. They wait for the disk.
#ifndef MEGATRAIN_SERVER_FILES_OWN_DIRECTORY_H_
#define MEGATRAIN_SERVER_FILES_OWN_DIRECTORY_H_

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/directory_tree.h"

namespace megatrain {

// Returns the id of the job in whose own directory `path` lies by its text, or "" if it lies in
// none.
std::string JobOfOwnDirectory(const std::string& state_directory, std::string_view path);

// Returns the size, as MeasureTree counts it, of what a job has in the state directory: its own
// directory, and what the daemon keeps of the job. It is not whole if the daemon may not act for
// the own directory's owner, if he may not read all of it, or if a tree is too deep
// (kTreeLevelsMax). Levels are counted from the own directory if it is another account's than the
// daemon's, else from STATE/jobs/ID. The size is 0 and whole if STATE/jobs/ID cannot be opened.
TreeSize MeasureJobDirectory(const std::string& state_directory, const std::string& job_id);

// Returns true if a name in the job's own directory begins with `prefix`, and false if none does or
// the directory is not there. Returns PermissionDenied if the daemon may not act for its owner, and
// otherwise FileError's codes.
absl::StatusOr<bool> OwnDirectoryHas(const std::string& state_directory, const std::string& job_id,
                                     std::string_view prefix);

// Removes the job's own directory: its content with its owner's rights, then the empty directory
// with the daemon's. Returns OK if there is no such directory. A file or link of that name stays.
// Files that the owner cannot remove (another account's, or in a directory closed to its owner)
// stay, and RemoveOwnDirectory returns PermissionDenied or another code of FileError. Returns
// PermissionDenied too if the daemon may not act for the owner. Returns Cancelled once `cancelled`
// returns true, as it then must each time: the owner may fill the directory without end. It is
// called on this thread, with the owner's rights, and may be null.
absl::Status RemoveOwnDirectory(const std::string& state_directory, const std::string& job_id,
                                const std::function<bool()>& cancelled = {});

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_FILES_OWN_DIRECTORY_H_
