// Removes and measures directory trees by walking them with file descriptors.
//
// No symbolic link within a tree is followed, even if other processes rename entries meanwhile:
// each name is opened relative to its directory's descriptor, and only as a directory. A walk uses
// at most kTreeLevelsMax descriptors and a few more, and a bounded amount of memory, however deep
// and wide the tree is.
//
// Thread safety: all functions may be called from any thread and block on the disk. They act with
// the file permissions of the calling thread.
#ifndef MEGATRAIN_ENGINE_BASE_DIRECTORY_TREE_H_
#define MEGATRAIN_ENGINE_BASE_DIRECTORY_TREE_H_

#include <dirent.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "engine/base/descriptor.h"

namespace megatrain {

// The greatest number of nested directories that a walk holds open. Each costs the C library's
// buffer of 32 KiB, so a walk takes 1 MiB.
inline constexpr int kTreeLevelsMax = 32;

// Iterates over the names in a directory. One thread at a time may use it.
class DirectoryReader {
 public:
  // The reader owns `directory`, which must be open for reading. If it cannot be listed, error() is
  // not 0 and Next() returns null.
  explicit DirectoryReader(Descriptor directory);
  ~DirectoryReader();
  DirectoryReader(const DirectoryReader&) = delete;
  DirectoryReader& operator=(const DirectoryReader&) = delete;

  // Returns the next name, skipping "." and "..". It is valid until the next call. Returns null at
  // the end and on an error; error() tells the two apart.
  const char* Next();
  int error() const { return error_; }  // the errno of the last failure, 0 if there was none
  // Returns a descriptor of the directory, valid as long as the reader. REQUIRES: the directory can
  // be listed, as Next has shown by returning a name.
  int descriptor() const { return ::dirfd(stream_); }

 private:
  DIR* stream_;
  int error_ = 0;
};

// Opens the directory `name` in `parent` for reading. On failure the result is not open and errno
// is set; for a symbolic link errno is ELOOP or ENOTDIR.
Descriptor OpenDirectoryAt(int parent, const char* name);

// Removes `name` in the directory `parent`, with everything beneath it if it is a directory.
// Succeeds if there is no such name. An entry that cannot be removed does not stop the removal of
// the others; the first error is returned, with the codes of FileError (file.h). `path` is used in
// messages.
//
// The tree may have any depth: a directory that is kTreeLevelsMax levels down is moved to the top
// of the tree and emptied there. If it cannot be moved, for instance because it is on another file
// system, that is an error. REQUIRES: `name` has no "/" and is neither "." nor "..". `parent` may
// be an O_PATH descriptor.
absl::Status RemoveTreeAt(int parent, const std::string& name, const std::string& path);

// Removes everything in `directory`, which is open for reading, but not the directory itself. The
// rules of RemoveTreeAt apply. `cancelled`, if given, is called on this thread before each name and
// at the end. Once it returns true, as it then must each time, no more is removed, but for
// directories that are empty by then, and the result is Cancelled.
absl::Status EmptyDirectory(Descriptor directory, const std::string& path,
                            const std::function<bool()>& cancelled = {});

struct TreeSize {
  int64_t bytes = 0;  // the lengths of all regular files, at most 2^53 in all
  // False if directories were left out: those kTreeLevelsMax levels down, and those that this
  // process may not read or search.
  bool whole = true;
};

// Measures the contents of `directory`, which is open for reading, leaving out the entry `without`
// at its top level. What cannot be examined for another reason than rights counts as empty.
TreeSize MeasureTree(Descriptor directory, std::string_view without = "");

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_DIRECTORY_TREE_H_
