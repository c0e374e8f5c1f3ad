// The messages between ParquetRecordReader and the program megatrain-parquet, over a socket pair.
// Both are of one build, so nothing in them has a version.
//
// The program sends messages, and the reader answers each kRead. Behind a header follow `bytes`
// bytes:
//   kRead     none. The program asks for `bytes` bytes of the file at offset `at`, at most
//             kParquetReadBytesMax. The answer is an int64 number of bytes and as many bytes;
//             fewer only at the end of the file
//   kRecord   the JSON of row `at`, numbered from 1
//   kDefect   why row `at` cannot be used
//   kFailure  why the file cannot be read on; nothing follows
//   kEnd      none; every row was sent, and nothing follows
#ifndef MEGATRAIN_ENGINE_DATA_PARQUET_PROTOCOL_H_
#define MEGATRAIN_ENGINE_DATA_PARQUET_PROTOCOL_H_

#include <cstdint>

namespace megatrain {

enum class ParquetMessage : uint64_t { kRead = 1, kRecord, kDefect, kFailure, kEnd };

struct ParquetHeader {
  ParquetMessage message;
  int64_t at;
  int64_t bytes;
};
static_assert(sizeof(ParquetHeader) == 24);

// The memory that the decoder may take at a time: pages, dictionaries and the rows in work.
inline constexpr int64_t kParquetBytesMax = int64_t{1} << 30;
inline constexpr int64_t kParquetReadBytesMax = int64_t{4} << 20;
inline constexpr int64_t kParquetReasonBytesMax = int64_t{1} << 16;  // kDefect and kFailure

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_PARQUET_PROTOCOL_H_
