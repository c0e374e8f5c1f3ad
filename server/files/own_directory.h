// A job's own directory (job_files.h) as the daemon looks after it: it belongs to the job's
// submitter, whose rights are taken on for it, since the daemon's own may not suffice. Whether
// there still is such an account does not matter.
//
// Thread safety: all functions from any thread; they wait for the disk.
#ifndef MEGATRAIN_SERVER_FILES_OWN_DIRECTORY_H_
#define MEGATRAIN_SERVER_FILES_OWN_DIRECTORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

// Of all files beneath the directory; symbolic links are not followed, what cannot be read is 0.
int64_t DirectoryBytes(const std::string& directory);

// Of all that a job has in the state directory: its own directory, and what the daemon keeps of it.
int64_t JobDirectoryBytes(const std::string& state_directory, const std::string& job_id);

// Names in the job's own directory; none if it is not there.
absl::StatusOr<std::vector<std::string>> ListOwnDirectory(const std::string& state_directory,
                                                          const std::string& job_id);

// Removes what is in it; fine if it is not there.
absl::Status EmptyOwnDirectory(const std::string& state_directory, const std::string& job_id);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_FILES_OWN_DIRECTORY_H_
