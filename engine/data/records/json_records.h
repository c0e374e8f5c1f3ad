// Splits a JSON Lines file or a JSON array into its records, one at a time.
#ifndef MEGATRAIN_ENGINE_DATA_RECORDS_JSON_RECORDS_H_
#define MEGATRAIN_ENGINE_DATA_RECORDS_JSON_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/records/data_file_io.h"

namespace megatrain {

inline constexpr size_t kRecordChunkBytes = size_t{1} << 20;
// The greatest length of a record. A longer one probably means that the file is not JSON Lines.
inline constexpr size_t kRecordBytesMax = size_t{1} << 30;

struct JsonRecord {
  std::string_view json;  // valid until the next call of Next
  int64_t line = 0;       // the line it begins on, from 1
  int64_t element = 0;    // its number in the array, from 1; 0 in JSON Lines
  int64_t offset = 0;     // in bytes from the start of the file
};

// Memory use is bounded by the longest record and one chunk, whatever the file's size. A file whose
// first character is '[' is one array. Any other file is JSON Lines: one record on each line, with
// blank lines skipped. A byte order mark at the start, CRLF line ends and a last line without an
// end are accepted.
//
// The reader finds where records begin and end and does not check that they are valid JSON. Not
// thread-safe.
class JsonRecordReader {
 public:
  // `stream` must outlive the reader. `path` is used in messages. One read takes `chunk_bytes`.
  explicit JsonRecordReader(HashingStream* stream, std::string path,
                            size_t chunk_bytes = kRecordChunkBytes,
                            size_t record_bytes_max = kRecordBytesMax);

  // Reads the next record. Returns false at the end, when the file has been read to its last byte.
  // Returns InvalidArgument, naming the file and the line, if the array is malformed or cut short
  // or a record is too long. Returns the errors of reading.
  absl::StatusOr<bool> Next(JsonRecord* record);

  // Returns "PATH:LINE" or, in an array, "PATH:LINE: element N".
  std::string Where(const JsonRecord& record) const;

 private:
  // Reads one more chunk into the buffer. Returns false if the file has ended.
  absl::StatusOr<bool> Fill();
  // Makes the byte at position_ available. Returns false at the end of the file.
  absl::StatusOr<bool> HasByte();
  // Skips white space and counts lines. Returns false at the end of the file.
  absl::StatusOr<bool> SkipWhiteSpace();
  absl::Status Begin();
  absl::StatusOr<bool> NextLine(JsonRecord* record);
  absl::StatusOr<bool> NextElement(JsonRecord* record);
  // Goes to the array's next element and returns true, or past the array's end and returns false.
  absl::StatusOr<bool> FindElement();
  // Goes past the object that begins here.
  absl::Status SkipElement();
  absl::Status Error(int64_t line, const std::string& what) const;
  absl::Status TooLong(int64_t line) const;

  HashingStream* const stream_;
  const std::string path_;
  const size_t chunk_bytes_;
  const size_t record_bytes_max_;

  std::vector<char> buffer_;
  size_t record_begin_ = 0;    // bytes before it are not needed any more
  size_t position_ = 0;        // the next byte to examine
  size_t end_ = 0;             // the number of bytes in the buffer
  int64_t buffer_offset_ = 0;  // the place of buffer_[0] in the file
  bool begun_ = false;
  bool array_ = false;
  bool done_ = false;
  int64_t line_ = 1;
  int64_t elements_ = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_RECORDS_JSON_RECORDS_H_
