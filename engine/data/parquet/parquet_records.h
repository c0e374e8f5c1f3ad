// ParquetRecordReader reads the rows of a Parquet file as records.
//
// A program of its own, megatrain-parquet, decodes the file. This process only reads the bytes of
// the file that the program asks for. There are three reasons:
// - Apache Arrow's libraries export copies of OpenSSL and simdjson under the names of Debian's, so
//   that neither linking them nor dlopen keeps the two apart.
// - A file that makes the decoder crash or grow does no harm to a daemon that trains.
// - The program opens no data file: what a job may read is decided here, by the job's FileSystem.
#ifndef MEGATRAIN_ENGINE_DATA_PARQUET_PARQUET_RECORDS_H_
#define MEGATRAIN_ENGINE_DATA_PARQUET_PARQUET_RECORDS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/descriptor.h"
#include "engine/data/parquet/protocol.h"
#include "engine/data/records/data_file_io.h"
#include "engine/data/records/record_reader.h"

namespace megatrain {

// A record is an object of the row's columns. Nulls, numbers that are not finite and bytes that are
// not UTF-8 count as missing; in a list or a map they become null. Texts, numbers, truth values,
// lists and structs become those of JSON. A map with texts for keys becomes an object, without the
// entries whose key or value is null, any other a list of {"key", "value"}. Days, times, decimals,
// 16-bit floating-point numbers and bytes that are UTF-8 become texts. A text that is not UTF-8 is
// the record's defect. Rows are numbered from 1.
//
// Next returns InvalidArgument if the file is no Parquet, is damaged or encrypted, has sizes that
// contradict each other, takes more memory than kParquetBytesMax at a time, or has a row longer
// than kRecordBytesMax. Next returns InvalidArgument also if the program ends too early, Internal
// if it asks for impossible bytes, and the errors of reading. No call may follow an error.
class ParquetRecordReader : public RecordReader {
 public:
  // Starts the program. If the file has a column `column`, only that is read; "" means all. `file`
  // must outlive the reader. Returns Unimplemented, saying how to get it, if there is no such
  // program, and Internal if it cannot be started. Does not look at the file's content.
  static absl::StatusOr<std::unique_ptr<ParquetRecordReader>> Open(const DataFileReader* file,
                                                                   const std::string& column);
  // Kills the program if it still runs.
  ~ParquetRecordReader() override;
  ParquetRecordReader(const ParquetRecordReader&) = delete;
  ParquetRecordReader& operator=(const ParquetRecordReader&) = delete;

  absl::StatusOr<bool> Next(Record* record) override;
  std::string Place(const Record& record) const override;
  // Returns the number of bytes that were read from the file so far, but at most its size.
  int64_t bytes_read() const;

 private:
  ParquetRecordReader(const DataFileReader* file, Descriptor socket, pid_t program);
  // Makes `bytes` bytes of the socket available in buffer_ from begin_ on.
  absl::Status Receive(size_t bytes);
  absl::Status Send(const void* data, size_t bytes);
  absl::Status AnswerRead(const ParquetHeader& header);
  // Waits for the program, which has ended too early, and returns an error that says how it ended.
  absl::Status Ended();

  const DataFileReader* const file_;
  Descriptor socket_;
  pid_t program_;  // -1 when it has ended
  std::vector<char> buffer_;
  size_t begin_ = 0;  // of what was received and not used
  size_t end_ = 0;
  std::vector<char> answer_;
  int64_t bytes_read_ = 0;
  bool done_ = false;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_PARQUET_PARQUET_RECORDS_H_
