// Splits comma-separated values into records.
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

// The form is that of RFC 4180: fields are separated by commas, and a field with a comma, a line
// end or a quote is in quotes, its quotes doubled. The first row names the columns. Rows end with
// LF, CRLF or CR; blank ones are skipped, and white space belongs to its field. A byte order mark
// at the start is accepted.
//
// Each row becomes a JSON object with a text for every column. The columns `messages`,
// `conversations` and `tools` hold JSON, which becomes the value itself; an empty field of theirs
// is left out. So is one of `documents`, `history` and `chat_template_kwargs`, which hold JSON or
// text. Rows are numbered from 1, the names' row being the first. A row with another number
// of fields than the first, a field that is not UTF-8, or one of those columns that is not JSON is
// the record's defect.
//
// Next returns InvalidArgument, naming the row, for misplaced quotes, a row that is too long, and
// names that are missing or there twice.
class CsvRecordReader : public RecordReader {
 public:
  // `text` must outlive the reader. `path` is used in messages. One read takes `chunk_bytes`.
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
