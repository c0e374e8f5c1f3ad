// CsvRecordReader splits comma-separated values into records.
#ifndef MEGATRAIN_ENGINE_DATA_RECORDS_CSV_RECORDS_H_
#define MEGATRAIN_ENGINE_DATA_RECORDS_CSV_RECORDS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/records/record_reader.h"

namespace megatrain {

// The most columns that a file may have.
inline constexpr size_t kCsvColumnsMax = 65536;

// Reads the form of RFC 4180. Fields are separated by commas. A field with a comma, a line end or a
// quote is in quotes, and its own quotes are doubled. The first row names the columns. Rows end
// with LF, CRLF or CR; blank ones are skipped, and white space belongs to its field. A byte order
// mark at the start is accepted.
//
// Each row becomes a JSON object. A field becomes a text, except in two kinds of columns, whose
// empty fields are left out:
// - `messages`, `conversations` and `tools` hold JSON, which becomes the value itself;
// - `documents`, `history` and `chat_template_kwargs` hold a list, an object or null as JSON, or
//   else a text.
// Rows are numbered from 1, the names' row being the first; blank rows do not count. A record has a
// defect (Record::defect) if it has another number of fields than the first row, a field that is
// not UTF-8, or a field of the first kind that is not JSON.
//
// Next returns InvalidArgument, naming the row, for quotes that are misplaced or not closed, a row
// that is too long, more than kCsvColumnsMax columns, and names of columns that are missing, not
// UTF-8 or there twice. A row of more than `record_bytes_max` is too long, but one that exceeds it
// by less than two chunks may be accepted. Next returns ResourceExhausted if memory for a row is
// missing, and the errors of reading.
class CsvRecordReader : public RecordReader {
 public:
  // `text` must outlive the reader. `path` is used in messages. The reader asks `text` for
  // `chunk_bytes`, but at least 3, at a time.
  CsvRecordReader(ByteSource* text, std::string path, size_t chunk_bytes = kRecordChunkBytes,
                  size_t record_bytes_max = kRecordBytesMax);
  ~CsvRecordReader() override;

  absl::StatusOr<bool> Next(Record* record) override;
  std::string Place(const Record& record) const override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_RECORDS_CSV_RECORDS_H_
