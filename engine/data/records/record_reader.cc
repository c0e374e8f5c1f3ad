#include "engine/data/records/record_reader.h"

#include "engine/data/records/csv_records.h"
#include "engine/data/records/json_records.h"
#include "engine/job/data_format.h"

namespace megatrain {

std::unique_ptr<RecordReader> MakeRecordReader(ByteSource* text, const std::string& path,
                                               size_t chunk_bytes) {
  if (KindOfFile(path).content == FileContent::kCsv) {
    return std::make_unique<CsvRecordReader>(text, path, chunk_bytes);
  }
  return std::make_unique<JsonRecordReader>(text, path, chunk_bytes);
}

}  // namespace megatrain
