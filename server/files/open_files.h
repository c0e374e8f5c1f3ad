// OpenFiles is the function that opens the files of a job. It separates the code that runs jobs
// from the code that decides what their submitters may touch.
#ifndef MEGATRAIN_SERVER_FILES_OPEN_FILES_H_
#define MEGATRAIN_SERVER_FILES_OPEN_FILES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/file.h"

namespace megatrain {

// Returns a file system that reaches the files that the account `uid` may name in a job, and the
// own directory of its job `job_id` ("" = none). Called from any thread, by several at once; may
// look up accounts. Returns the errors of JobFiles::OpenFor or JobFiles::PrepareForRun.
using OpenFiles = std::function<absl::StatusOr<std::shared_ptr<FileSystem>>(
    int64_t uid, const std::string& job_id)>;

// Returns an OpenFiles that reaches what the process may, for every account. It returns no errors.
inline OpenFiles FilesOfProcess() {
  return [](int64_t, const std::string&) {
    return absl::StatusOr<std::shared_ptr<FileSystem>>(
        std::shared_ptr<FileSystem>(PosixFileSystem(), [](FileSystem*) {}));
  };
}

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_FILES_OPEN_FILES_H_
