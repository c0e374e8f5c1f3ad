// The records of a JSON Lines file or of a JSON array, one at a time.
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
// One record must fit in memory; more than this is taken for a file that is not JSON Lines.
inline constexpr size_t kRecordBytesMax = size_t{1} << 30;

struct JsonRecord {
  std::string_view json;  // valid until the next call of Next
  int64_t line = 0;       // from 1: where it begins
  int64_t element = 0;    // from 1: its number in the array; 0 in JSON Lines
  int64_t offset = 0;     // bytes from the file's start
};

// Streams: memory is the longest record and one chunk, whatever the file's size. A file whose first
// character is '[' is one array, any other is JSON Lines: a record a line, blank lines skipped. A
// byte order mark at the start, CRLF and a last line without its end are accepted. Only where a
// record begins and ends is decided here; whether it is JSON is for who parses it.
class JsonRecordReader {
 public:
  // `stream` must outlive the reader. `chunk_bytes` is how much is read at once.
  explicit JsonRecordReader(HashingStream* stream, std::string path,
                            size_t chunk_bytes = kRecordChunkBytes,
                            size_t record_bytes_max = kRecordBytesMax);

  // False at the end of the file, which has then been read to its last byte. Errors name the file
  // and the line.
  absl::StatusOr<bool> Next(JsonRecord* record);

  // "PATH:LINE" or "PATH:LINE: element N".
  std::string Where(const JsonRecord& record) const;

 private:
  // Reads a chunk behind what is buffered; false if the file has ended.
  absl::StatusOr<bool> Fill();
  // True when the next byte is at position_ of the buffer; false at the end of the file.
  absl::StatusOr<bool> HasByte();
  // Passes over white space and counts lines; false at the end of the file.
  absl::StatusOr<bool> SkipWhiteSpace();
  absl::Status Begin();
  absl::StatusOr<bool> NextLine(JsonRecord* record);
  absl::StatusOr<bool> NextElement(JsonRecord* record);
  // Goes to the array's next element, or past its end (false).
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
  size_t record_begin_ = 0;    // what lies before is not needed any more
  size_t position_ = 0;        // the next byte to look at
  size_t end_ = 0;             // bytes in the buffer
  int64_t buffer_offset_ = 0;  // of buffer_[0] in the file
  bool begun_ = false;
  bool array_ = false;
  bool done_ = false;
  int64_t line_ = 1;
  int64_t elements_ = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_RECORDS_JSON_RECORDS_H_
