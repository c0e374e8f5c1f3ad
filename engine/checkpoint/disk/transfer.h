// Moves the content of files between memory and disk in aligned blocks, past the page cache where
// the file system allows that (BlockFile). The tensors of a file are neither aligned in it nor in
// memory, so each block is copied.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_DISK_TRANSFER_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_DISK_TRANSFER_H_

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/base/file.h"

namespace megatrain {

// Large enough that a disk's time for a request is spent on moving bytes.
inline constexpr int64_t kTransferBlockBytes = int64_t{4} << 20;
// A disk is fast only with several requests at a time, whatever the number of processors.
inline constexpr int kTransferThreads = 8;
// The memory of a save or a load besides the state itself: a block for each thread. The plan counts
// it.
inline constexpr int64_t kTransferBytes = kTransferThreads * kTransferBlockBytes;

// Owns the memory of a block, kTransferBlockBytes bytes at a multiple of kDirectAlignment.
class TransferBlock {
 public:
  TransferBlock() : data_(static_cast<char*>(::operator new(kTransferBlockBytes, kAlignment))) {}
  char* data() const { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{kDirectAlignment};
  struct Free {
    void operator()(char* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<char, Free> data_;
};

// A part of a file and its place in memory.
struct FilePiece {
  int64_t offset = 0;    // in the file
  char* data = nullptr;  // null if the part has no place in memory
  int64_t bytes = 0;
};

// Bytes [begin, end) of a file.
struct FileRange {
  int64_t begin = 0, end = 0;
};

// Copy the block [offset, offset + bytes) of a file from or to the memory of its pieces. Bytes
// without a place in memory are not copied. REQUIRES: `pieces` are ordered by offset and do not
// overlap.
void CopyFromPieces(const std::vector<FilePiece>& pieces, int64_t offset, char* block,
                    int64_t bytes);
void CopyToPieces(const char* block, int64_t offset, int64_t bytes,
                  const std::vector<FilePiece>& pieces);

// Reads the blocks of `file` for which wanted(offset, bytes) is true, by default all, and passes
// each to `take`, in the order of the file and on the calling thread. Blocks begin at multiples of
// kTransferBlockBytes, and the last one may be smaller. `block` is valid during that call of `take`
// only. Returns DataLoss if the file ends before its size, the errors of reading, and the first
// error of `take`. REQUIRES: `file` is from FileSystem::OpenBlocksForReading.
absl::Status ReadInBlocks(
    const RandomAccessFile& file,
    absl::FunctionRef<absl::Status(int64_t offset, const char* block, int64_t bytes)> take,
    absl::FunctionRef<bool(int64_t offset, int64_t bytes)> wanted = [](int64_t, int64_t) {
      return true;
    });

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_DISK_TRANSFER_H_
