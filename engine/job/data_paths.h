// Finds the files that the entries of `data.train` and `data.eval` name.
#ifndef MEGATRAIN_ENGINE_JOB_DATA_PATHS_H_
#define MEGATRAIN_ENGINE_JOB_DATA_PATHS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/job/job_spec.h"

namespace megatrain {

// The most names of files and directories that are looked at for one entry. A directory behind `**`
// may be listed twice; its names then count twice.
inline constexpr int64_t kDataPathsMax = 2000000;

// Returns the files of one entry, each with the entry's other fields. A path may name
//   a file        which is returned as it is, whether it is there or not
//   a directory   all files in it and beneath it. Each must have a name that goes with the entry's
//                 format (FileNamesOf)
//   a glob        what matches: `*`, `?` and `[...]` within a name, and `**` for any number of
//                 directories. A directory that matches stands for the files in it. The path of an
//                 existing file or directory is taken literally, whatever its characters
// Files are sorted by path, byte by byte, each once. Names that begin with a dot are passed over,
// except where a glob's own part begins with one. Symbolic links are followed.
//
// Returns InvalidArgument, naming the path, for a directory without data, a file in a directory
// that does not go with the format, a glob that nothing matches, and for more than kDataPathsMax
// names or 32 nested directories. Returns the errors of CheckReadable and of `files`.
absl::StatusOr<std::vector<DataFile>> ExpandDataFile(const DataFile& entry, FileSystem* files);

// Returns the files of all entries, in the entries' order, or the first error of ExpandDataFile.
absl::StatusOr<std::vector<DataFile>> ExpandDataFiles(const std::vector<DataFile>& entries,
                                                      FileSystem* files);

// Checks that every entry leads to files, and that the first file of each can be opened. Returns
// the errors of ExpandDataFile and of opening.
absl::Status CheckDataFiles(const std::vector<DataFile>& entries, FileSystem* files);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_DATA_PATHS_H_
