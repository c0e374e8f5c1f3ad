// ReferenceLogps keeps on disk the log-probabilities that the reference model of a preference
// objective gives the answers of all sequences of a Dataset: those for training, then those for
// evaluation. They are made in parts of consecutive sequences. Each part is a cache file of its
// own, so a run that is killed meanwhile loses one part at most.
//
// A part is an array of elements of 8 bytes. First come the numbers (uint64) of the elements at
// which each sequence's values begin, and the number of elements. Then come the values (double): of
// each pair that of the chosen answer, then that of the rejected one.
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
  // The part files lie in `directory`. `key` must differ if anything that affects the values does.
  // Each part has `part_sequences` of the `sequences`; the last may have fewer. Opens nothing.
  // `files` must outlive this object. REQUIRES: part_sequences >= 1.
  ReferenceLogps(std::string directory, std::string key, int64_t sequences, int64_t part_sequences,
                 FileSystem* files);

  int64_t sequences() const { return sequences_; }
  int64_t parts() const { return static_cast<int64_t>(parts_.size()); }
  int64_t part_begin(int64_t part) const { return part * part_sequences_; }
  int64_t part_end(int64_t part) const;

  // Opens a part. Returns false if that fails, for example because the part is not there or
  // damaged. It must then be made. REQUIRES, here and below: 0 <= part < parts().
  bool Open(int64_t part);
  // Opens the parts in order. Returns false at the first that must be made, and true if all are
  // open.
  bool OpenAll();
  // Writes and opens a part, or opens the one that is there already or that another process makes
  // meanwhile. `logps` has the values of each of its sequences, [part_end - part_begin][2 * pairs
  // of the sequence]. Returns the errors of writing, or DataLoss if the part cannot be opened then.
  absl::Status Make(int64_t part, const std::vector<std::vector<double>>& logps);
  // Returns the values of a sequence, [2 * its pairs], or the errors of CacheFile::Read. Returns
  // DataLoss if the part does not fit its sequences, and removes its file, so that it is made again
  // at the next start. REQUIRES: 0 <= sequence < sequences(), and its part is open.
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
