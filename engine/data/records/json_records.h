// JsonRecordReader splits a JSON Lines file or a JSON array into its records, one at a time.
#ifndef MEGATRAIN_ENGINE_DATA_RECORDS_JSON_RECORDS_H_
#define MEGATRAIN_ENGINE_DATA_RECORDS_JSON_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/records/record_reader.h"

namespace megatrain {

// A file whose first character, behind a byte order mark and white space, is '[' is one array. Any
// other file is JSON Lines: one record on each line, with blank lines skipped. A byte order mark at
// the start, CRLF line ends and a last line without an end are accepted.
//
// The reader finds where records begin and end and does not check that they are valid JSON.
class JsonRecordReader : public RecordReader {
 public:
  // `text` must outlive the reader. `path` is used in messages. The reader asks `text` for
  // `chunk_bytes` at a time. REQUIRES: chunk_bytes > 0.
  explicit JsonRecordReader(ByteSource* text, std::string path,
                            size_t chunk_bytes = kRecordChunkBytes,
                            size_t record_bytes_max = kRecordBytesMax);

  // Returns InvalidArgument if the array lacks an element, a comma or its end or has text behind
  // that, and if a record has more than `record_bytes_max`. The white space behind a record counts
  // on its line, and in an array behind an element without brackets. Returns the errors of reading.
  absl::StatusOr<bool> Next(Record* record) override;
  std::string Place(const Record& record) const override;

 private:
  // Reads one more chunk into the buffer. Returns false if the file has ended.
  absl::StatusOr<bool> Fill();
  // Makes the byte at position_ available. Returns false at the end of the file.
  absl::StatusOr<bool> HasByte();
  // Skips white space and counts lines. Returns false at the end of the file.
  absl::StatusOr<bool> SkipWhiteSpace();
  absl::Status Begin();
  absl::StatusOr<bool> NextLine(Record* record);
  absl::StatusOr<bool> NextElement(Record* record);
  // Goes to the array's next element and returns true, or past the array's end and returns false.
  absl::StatusOr<bool> FindElement();
  // Goes past the element that begins here.
  absl::Status SkipElement();
  absl::Status Error(int64_t line, const std::string& what) const;
  absl::Status TooLong(int64_t line) const;

  ByteSource* const text_;
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
