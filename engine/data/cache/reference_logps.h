// Keeps on disk the log-probabilities that the reference model of a preference objective gives the
// answers of all sequences. They are made in parts of consecutive sequences, each a cache file of
// its own, so that a run that is killed meanwhile loses one part at most.
//
// A part is an array of elements of 8 bytes. First come the numbers (uint64) of the elements at
// which each sequence's values begin, and the number of elements. Then come the values (double),
// two for each pair of answers.
#ifndef MEGATRAIN_ENGINE_DATA_CACHE_REFERENCE_LOGPS_H_
#define MEGATRAIN_ENGINE_DATA_CACHE_REFERENCE_LOGPS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"
#include "engine/data/cache/token_cache.h"
#include "engine/data/records/bounded_file_system.h"

namespace megatrain {

// Thread safety: const methods may be called from several threads.
class ReferenceLogps {
 public:
  // `key` tells apart everything that affects the values. `files` must outlive this. REQUIRES:
  // part_sequences >= 1.
  ReferenceLogps(std::string directory, std::string key, int64_t sequences, int64_t part_sequences,
                 FileSystem* files);

  int64_t sequences() const { return sequences_; }
  int64_t parts() const { return static_cast<int64_t>(parts_.size()); }
  int64_t part_begin(int64_t part) const { return part * part_sequences_; }
  int64_t part_end(int64_t part) const;

  // Opens a part. Returns false if it is not there or damaged, so that it must be made.
  bool Open(int64_t part);
  // Opens all parts; false if any must be made.
  bool OpenAll();
  // Writes and opens a part, or opens the one that another process has made meanwhile. `logps` has
  // the values of each of its sequences. Returns the errors of writing, or DataLoss if the part
  // cannot be opened then.
  absl::Status Make(int64_t part, const std::vector<std::vector<double>>& logps);
  // Returns the values of a sequence, or the errors of CacheFile::Read. If they are damaged
  // (DataLoss), the part is removed, so that it is made again at the next start. REQUIRES: its part
  // is open.
  absl::StatusOr<std::vector<double>> Read(int64_t sequence) const;

 private:
  std::string PartKey(int64_t part) const;
  std::string PartName(int64_t part) const;

  const std::string directory_, key_;
  const int64_t sequences_, part_sequences_;
  const std::unique_ptr<BoundedFileSystem> files_;
  std::vector<std::unique_ptr<CacheFile>> parts_;  // null: not open
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_CACHE_REFERENCE_LOGPS_H_
