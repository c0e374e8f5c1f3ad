// BoundedFileSystem is a file system whose OpenForReading can open any number of files with a
// bounded number of descriptors. All other operations, OpenBlocksForReading among them, are those
// of the underlying file system.
//
// Thread safety: as FileSystem's.
#ifndef MEGATRAIN_ENGINE_DATA_RECORDS_BOUNDED_FILE_SYSTEM_H_
#define MEGATRAIN_ENGINE_DATA_RECORDS_BOUNDED_FILE_SYSTEM_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/base/watched_file_system.h"

namespace megatrain {

// Returns a quarter of the descriptors that the process may have, because other files need some
// too. The result is at least 1 and at most 256.
size_t DescriptorShare();

class BoundedFileSystem : public WatchedFileSystem {
 public:
  // At most `descriptors` files keep a descriptor: those that were read last. A read under way
  // keeps its own until it ends. `base` must outlive this object and all files opened through it.
  // Files of OpenForReading may outlive this object, others may not (watched_file_system.h).
  // REQUIRES: descriptors >= 1.
  BoundedFileSystem(FileSystem* base, size_t descriptors);
  ~BoundedFileSystem() override;

  // Returns a file that is opened again by its path if it is read when it has no descriptor.
  // Returns the errors of opening and of Examine. The file's ReadUpTo then returns these errors
  // too, and Aborted if the path leads to another file, or if the file's size or the time of its
  // content's last change differs.
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForReading(
      const std::string& path) override;

 private:
  class File;
  struct State;
  FileSystem* const base_;
  const std::shared_ptr<State> state_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_RECORDS_BOUNDED_FILE_SYSTEM_H_
