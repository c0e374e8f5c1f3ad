// Defines the messages between ParquetRecordReader and the program megatrain-parquet, which go over
// a socket pair. Both are of one build, so the messages have no version.
//
// The program sends messages, and the reader answers each kRead. A message is a ParquetHeader and,
// where the comment below says so, a text of ParquetHeader::bytes bytes.
#ifndef MEGATRAIN_ENGINE_DATA_PARQUET_PROTOCOL_H_
#define MEGATRAIN_ENGINE_DATA_PARQUET_PROTOCOL_H_

#include <cstdint>

namespace megatrain {

enum class ParquetMessage : uint64_t {
  // No text. Asks for `bytes` bytes of the file at offset `at`, at most kParquetReadBytesMax. The
  // answer is an int64 number of bytes and as many bytes: fewer only at the end of the file.
  kRead = 1,
  kRecord,   // the text is the JSON of row `at`, numbered from 1; at most kRecordBytesMax
  kDefect,   // the text says why row `at` cannot be used
  kFailure,  // the text says why the file cannot be read on; the last message
  kEnd,      // no text; every row was sent; the last message
};

// The head of a message. Unused numbers are 0.
struct ParquetHeader {
  ParquetMessage message;
  int64_t at;
  int64_t bytes;
};
static_assert(sizeof(ParquetHeader) == 24);

// The memory that the decoder may take at a time: pages, dictionaries and the rows in work.
inline constexpr int64_t kParquetBytesMax = int64_t{1} << 30;
inline constexpr int64_t kParquetReadBytesMax = int64_t{4} << 20;
inline constexpr int64_t kParquetReasonBytesMax = int64_t{1} << 16;  // of kDefect or kFailure

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_PARQUET_PROTOCOL_H_
