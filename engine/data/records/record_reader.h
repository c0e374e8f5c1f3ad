// RecordReader reads a data file as records. Each record is the text of a JSON object, whatever the
// file's kind. Of JSON files that is not checked here.
#ifndef MEGATRAIN_ENGINE_DATA_RECORDS_RECORD_READER_H_
#define MEGATRAIN_ENGINE_DATA_RECORDS_RECORD_READER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/records/byte_source.h"

namespace megatrain {

// The bytes that a reader asks its source for at a time, if nothing else is said.
inline constexpr size_t kRecordChunkBytes = size_t{1} << 20;
// The greatest length of a record, or of a row of CSV, in bytes. A row of CSV may be a little
// longer (csv_records.h). A longer one probably means that the file is of another kind.
inline constexpr size_t kRecordBytesMax = size_t{1} << 30;

// One record of a file, and its place there.
struct Record {
  std::string_view json;  // valid until the next call of Next
  int64_t line = 0;       // the line it begins on, from 1; 0 in CSV and Parquet
  int64_t element = 0;    // its number in a JSON array, from 1, or its row; 0 in JSON Lines
  // In bytes, of `json` in the file's decompressed text; 0 in CSV and Parquet.
  int64_t offset = 0;
  // Not OK if this record cannot be used and the reader can go on. `json` is then empty. The
  // message does not name the record.
  absl::Status defect;
};

// Memory use depends on the longest record and the chunk, not on the file's size. Not thread-safe.
class RecordReader {
 public:
  virtual ~RecordReader() = default;
  // Sets `*record` to the next record and returns true, or returns false at the end. Any file but
  // Parquet has then been read to its last byte. Returns InvalidArgument, naming the file and the
  // place, for content after which the reader cannot go on. Returns the errors of reading. No call
  // may follow an error.
  virtual absl::StatusOr<bool> Next(Record* record) = 0;
  // Returns the record's place, to be put behind the path: ":LINE", ":LINE: element N" or ": row
  // N". May be called while another thread calls Next.
  virtual std::string Place(const Record& record) const = 0;
};

// Returns the reader of a file: of comma-separated values if the ending of `path` says so, else of
// JSON. `path` is also used in messages. `text` is the file's decompressed content and must outlive
// the result. The reader asks it for `chunk_bytes` (> 0) at a time. REQUIRES: the file is not
// Parquet (parquet_records.h).
std::unique_ptr<RecordReader> MakeRecordReader(ByteSource* text, const std::string& path,
                                               size_t chunk_bytes = kRecordChunkBytes);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_RECORDS_RECORD_READER_H_
