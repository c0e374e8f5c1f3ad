// DataSide prepares the sequences of one list of data files, in file order. OpenDataset makes one
// for each set of `data.eval`, and one for `data.train` or, if that is a mix, for each entry of it.
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_DATA_SIDE_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_DATA_SIDE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/data/records/token_file.h"
#include "engine/data/sequences/dataset.h"
#include "engine/data/sequences/packing.h"
#include "engine/data/sequences/sequence_index.h"
#include "engine/data/sequences/token_stream.h"

namespace megatrain {

// Options for tokenizing and packing the files.
struct DataSideOptions {
  TokenStreamOptions stream;
  PackingOptions packing;
  int32_t pad_id = 0;
};

// Consecutive files of format `tokens` form one stream of ids, and so do consecutive files of the
// other formats. A sequence does not span two such runs of files.
//
// Thread safety: const methods may be called from several threads.
class DataSide {
 public:
  // Prepares all files. `progress` may be null. Returns InvalidArgument for an empty file of format
  // `tokens`, and the errors of TokenStream::Open, SequenceIndex::Open, TokenFile::Open,
  // TokenFile::Scan and FileSystem::Examine. The file system of `options` must outlive the result.
  // Other objects that `options` points to are used during the call only. REQUIRES: the paths are
  // those of files, as ExpandDataFile returns them.
  static absl::StatusOr<std::unique_ptr<DataSide>> Open(absl::Span<const DataFile> files,
                                                        const DataSideOptions& options,
                                                        const ByteProgress& progress);

  int64_t sequences() const { return report_.sequences; }
  const DatasetReport& report() const { return report_; }
  // Returns the XXH3-128 (32 hex digits) of everything that affects the sequences.
  const std::string& key() const { return key_; }
  // Returns a sequence, or the error of reading. REQUIRES: 0 <= index < sequences().
  absl::StatusOr<Sequence> Read(int64_t index) const;

 private:
  struct Run {
    int64_t first_sequence = 0;
    // For a run of documents; null otherwise.
    std::unique_ptr<TokenStream> stream;
    std::unique_ptr<SequenceIndex> index;
    // For a run of token files: each file and the place of its first element in the run's stream.
    std::vector<std::pair<int64_t, std::unique_ptr<TokenFile>>> files;
  };

  explicit DataSide(const DataSideOptions& options) : options_(options) {}
  absl::Status AddDocuments(absl::Span<const DataFile> files, const ByteProgress& progress);
  absl::Status AddTokens(absl::Span<const DataFile> files, const ByteProgress& progress);
  // Checks the file's ids and returns its hash, or what is remembered of both.
  absl::StatusOr<std::string> ScanOnce(const TokenFile& file, const ByteProgress& progress) const;
  absl::StatusOr<Sequence> ReadTokens(const Run& run, int64_t index) const;

  const DataSideOptions options_;
  std::vector<Run> runs_;
  DatasetReport report_;
  std::string key_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_DATA_SIDE_H_
