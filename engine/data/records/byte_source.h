// ByteSource is a stream of bytes that is read from front to back. Decompress makes one of another.
#ifndef MEGATRAIN_ENGINE_DATA_RECORDS_BYTE_SOURCE_H_
#define MEGATRAIN_ENGINE_DATA_RECORDS_BYTE_SOURCE_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/job/data_format.h"

namespace megatrain {

// Not thread-safe.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Reads up to `bytes` more bytes and returns how many it read: 0 only at the end of the stream.
  // Returns the errors of the stream. REQUIRES: bytes > 0.
  virtual absl::StatusOr<size_t> Read(void* to, size_t bytes) = 0;
};

// Returns the decompressed content of `source`, which must outlive the result. gzip files may have
// several members and zstd files several frames. `path` is used in messages; `compression` comes
// from KindOfFile (engine/job/data_format.h). Memory use is bounded whatever the content: about 300
// KiB for gzip, and for zstd about 750 KiB besides the frame's window, which is at most 128 MiB.
// The length of the content is not bounded; readers of records bound a record.
//
// Read returns the errors of `source`, ResourceExhausted if memory is missing, and InvalidArgument,
// naming the file and the byte in the compressed data, for data that is damaged, cut short, not of
// this compression, or needs a dictionary or a window above 128 MiB. Bytes behind the last member
// or frame are damage too. No call may follow an error. REQUIRES: `compression` is not kNone.
std::unique_ptr<ByteSource> Decompress(Compression compression, ByteSource* source,
                                       std::string path);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_RECORDS_BYTE_SOURCE_H_
