// FileHashes remembers the content hashes of data files beside the cache. So files that did not
// change are not read again at every start.
//
// A file is taken for unchanged if its device, inode, size, time of last change of the content and
// time of last change of the inode are what they were. The last is set by the kernel at every write
// and cannot be set back by programs. A hash is not remembered if the file was changed so shortly
// before that a later change could bear the same time.
//
// Thread safety: all methods may be called from several threads.
#ifndef MEGATRAIN_ENGINE_DATA_CACHE_FILE_HASHES_H_
#define MEGATRAIN_ENGINE_DATA_CACHE_FILE_HASHES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/base/file.h"
#include "engine/base/mutex.h"

namespace megatrain {

// The facts about a file's content that are remembered.
struct FileHash {
  std::string hash;         // XXH3-128 as 32 hex digits
  int64_t id_bytes = 0;     // the width with which ids were read, which a .bin file does not say
  int64_t largest_id = -1;  // of those ids; -1 in a file of another kind
};

class FileHashes {
 public:
  // Reads `directory`/hashes.cache. Nothing is remembered if that file cannot be read, is damaged
  // or larger than 1 GiB, or with `forget`. With `forget`, Save replaces only the hashes of data
  // files that were hashed anew, and keeps the others in hashes.cache. `files` must outlive this
  // object.
  FileHashes(std::string directory, bool forget, FileSystem* files);

  // Returns what is remembered of a file that has not changed since, or nullopt.
  std::optional<FileHash> Find(const FileInfo& info) const;
  // Remembers the hash of a file that was examined before it was read. `now` is the time at which
  // reading began. Does nothing for a file that was changed shortly before `now`.
  void Remember(const FileInfo& info, const FileHash& hash, absl::Time now);
  // Writes the file if anything new was learnt, and creates the directory. Hashes that another
  // process has remembered meanwhile are kept. If another process is writing the file, leaves the
  // hashes for a later call. Returns the errors of writing.
  absl::Status Save();
  // Does as Save, but nothing within ten seconds of the last time, or of the construction.
  absl::Status SaveIfDue();

 private:
  struct Known {
    int64_t bytes = 0;
    int64_t modified = 0;  // nanoseconds of Unix time, like the next
    int64_t changed = 0;
    FileHash hash;
  };
  using Table = std::map<std::pair<uint64_t, uint64_t>, Known>;  // by device and inode

  Table Read() const;
  absl::Status Write() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string directory_;
  FileSystem* const files_;
  mutable Mutex mutex_;
  Table table_ ABSL_GUARDED_BY(mutex_);
  Table learnt_ ABSL_GUARDED_BY(mutex_);  // not yet written
  absl::Time saved_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_CACHE_FILE_HASHES_H_
