// PlacedWriter writes a new file of a known size from pieces that come in any order.
#ifndef MEGATRAIN_ENGINE_HF_PLACED_WRITER_H_
#define MEGATRAIN_ENGINE_HF_PLACED_WRITER_H_

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/file.h"

namespace megatrain {

// A writer holds each block of the file in memory from its first piece until all of it is there.
// Pieces that come one after another need memory for one block; it is freed with the writer. The
// destructor does not complete the file and does not remove it. Not thread-safe.
class PlacedWriter {
 public:
  // The size of a block: large enough that a disk's time for a request is spent on moving bytes.
  static constexpr int64_t kBlockBytes = int64_t{4} << 20;

  // Creates or empties the file with FileSystem::NewBlockFile and returns its errors. `bytes` is
  // the size of the finished file. `files` must outlive the writer.
  static absl::StatusOr<std::unique_ptr<PlacedWriter>> Create(FileSystem* files,
                                                              const std::string& path,
                                                              int64_t bytes);

  // Writes the piece that begins at `offset`; `data` is copied. Returns ResourceExhausted if memory
  // is missing, and the errors of BlockFile. After an error the file is incomplete, and only the
  // destructor may follow. REQUIRES: the piece lies within the file, and no other piece overlaps
  // it.
  absl::Status Write(int64_t offset, const void* data, int64_t bytes);
  // Returns the bytes that were not given yet.
  int64_t missing() const { return missing_; }
  // Syncs and closes the file. Returns FailedPrecondition if bytes are missing, and the errors of
  // BlockFile. Call it once.
  absl::Status Finish();

 private:
  struct Free {
    void operator()(char* data) const { std::free(data); }
  };
  // Blocks of the file lie at multiples of kBlockBytes; the last one may be shorter.
  struct Block {
    std::unique_ptr<char, Free> data;
    int64_t filled = 0;
  };

  PlacedWriter(std::string path, std::unique_ptr<BlockFile> file, int64_t bytes)
      : path_(std::move(path)), file_(std::move(file)), bytes_(bytes), missing_(bytes) {}

  const std::string path_;
  const std::unique_ptr<BlockFile> file_;
  const int64_t bytes_;
  int64_t missing_;
  std::map<int64_t, Block> begun_;  // by the block's number; those that are not full
  std::vector<std::unique_ptr<char, Free>> unused_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_PLACED_WRITER_H_
