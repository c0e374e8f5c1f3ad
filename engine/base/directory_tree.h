// Trees of directories, walked by descriptor: their removal and their size.
//
// No symbolic link in a tree is followed, whoever changes names meanwhile: each name is opened in
// the descriptor of its directory, and only as a directory. A walk takes the same memory and at
// most kTreeLevelsMax descriptors, and a few, however deep and wide the tree is.
//
// Thread safety: all functions from any thread; they wait for the disk. They act with the rights
// that the calling thread has.
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

// Directories below each other that a walk has open. The C library's buffer of 32 KiB comes with
// each, so that a walk takes 1 MiB.
inline constexpr int kTreeLevelsMax = 32;

// The names in a directory, one after the other.
class DirectoryReader {
 public:
  // `directory` is open for reading.
  explicit DirectoryReader(Descriptor directory);
  ~DirectoryReader();
  DirectoryReader(const DirectoryReader&) = delete;
  DirectoryReader& operator=(const DirectoryReader&) = delete;

  // Without "." and ".."; valid until the next call. Null at the end, and on an error.
  const char* Next();
  int error() const { return error_; }  // errno's value, 0 if Next has met none
  int descriptor() const { return ::dirfd(stream_); }

 private:
  DIR* stream_;
  int error_ = 0;
};

// The directory `name` in `parent`, open for reading. Not open, with errno, if there is none: a
// symbolic link is ELOOP or ENOTDIR.
Descriptor OpenDirectoryAt(int parent, const char* name);

// Removes `name` in the directory `parent`, with all beneath it if it is a directory; fine if there
// is nothing. What cannot be removed does not keep the rest: the first error is returned. `path` is
// for messages.
//
// A tree may have any depth: a directory kTreeLevelsMax levels down is moved to the top of the tree
// and emptied there. One that cannot be moved (it lies on another file system) is an error.
absl::Status RemoveTreeAt(int parent, const std::string& name, const std::string& path);

// The same for all that is in `directory`, which is open for reading and stays. `cancelled`, if it
// is not empty, is called before each name: once it is true nothing more is removed, with
// Cancelled.
absl::Status EmptyDirectory(Descriptor directory, const std::string& path,
                            const std::function<bool()>& cancelled = {});

struct TreeSize {
  int64_t bytes = 0;  // the lengths of all regular files
  // False if there are directories kTreeLevelsMax levels down: they are not looked into.
  bool whole = true;
};

// Measures the contents of `directory`, which is open for reading, less its entry `without`. Files
// and directories that cannot be read count for nothing.
TreeSize MeasureTree(Descriptor directory, std::string_view without = "");

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_DIRECTORY_TREE_H_
