// Writes files whose content lies in memory, with several requests at the disk at a time.
//
// Each of up to kTransferThreads threads copies the next block of the files under way and writes
// the copy. The caller may reuse its memory when its last block was copied, before that is written.
// So the disk has requests while the caller goes on to the next files.
//
// Thread safety: one thread at a time may call methods. Invariants: an error ends all files under
// way; every later Write and Finish returns it.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_DISK_PARALLEL_WRITER_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_DISK_PARALLEL_WRITER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/file.h"
#include "engine/base/mutex.h"
#include "engine/checkpoint/disk/transfer.h"

namespace megatrain {

class ParallelWriter {
 public:
  struct FileToWrite {
    std::string path;
    // In the order of the file, each with a place in memory. All of the file unless it is shared.
    std::vector<FilePiece> pieces;
    // True if several processes write the file (FileSystem::OpenBlockFile). Only then the next two
    // are used.
    bool shared = false;
    int64_t bytes = 0;  // of the whole file
    // The ranges that this process writes, and that its pieces cover. They begin and end at
    // multiples of kDirectAlignment or at the file's end. Without ranges this process only hashes
    // the pieces, and does not open the file.
    std::vector<FileRange> ranges = {};
  };

  // `files` must outlive the writer.
  explicit ParallelWriter(FileSystem* files) : files_(files) {}
  // Waits for the blocks that are being written. The others, and files that were not synced, are
  // dropped.
  ~ParallelWriter();
  ParallelWriter(const ParallelWriter&) = delete;
  ParallelWriter& operator=(const ParallelWriter&) = delete;

  // Creates the files and begins to write them. Returns once the memory of the pieces is not needed
  // any more, with the XXH3-128 of each file's pieces as 32 hex digits. Returns the errors of
  // `files`. Errors of writing may come later, from Write or Finish.
  absl::StatusOr<std::vector<std::string>> Write(std::vector<FileToWrite> new_files);

  // Waits until all files are on stable storage or there is an error, and frees the blocks, so that
  // the files can be read again in the same memory. Returns the first error. More files may follow
  // after a success.
  absl::Status Finish();

  // Returns false if a file that was written went through the page cache. REQUIRES: Finish
  // succeeded.
  bool direct() const;

 private:
  struct File;

  // Starts threads for `blocks` more blocks, as far as there may be more.
  void StartThreads(int64_t blocks);
  // Waits for the blocks that are being written, and ends the threads.
  void EndThreads() ABSL_LOCKS_EXCLUDED(mutex_);
  void Work();
  // Writes a claimed block that was copied to `block`, and syncs and closes the file after its
  // last.
  absl::Status WriteBlock(File& file, int64_t offset, const char* block, int64_t bytes);
  bool Copied(absl::Span<const std::shared_ptr<File>> files) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  FileSystem* const files_;
  mutable Mutex mutex_;
  CondVar work_;      // there are blocks to claim, or stop_
  CondVar progress_;  // blocks were copied or written
  std::deque<std::shared_ptr<File>> claimable_ ABSL_GUARDED_BY(mutex_);  // not all blocks claimed
  int busy_ ABSL_GUARDED_BY(mutex_) = 0;                                 // threads
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool direct_ ABSL_GUARDED_BY(mutex_) = true;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;  // started by Write, as many as have something to do
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_DISK_PARALLEL_WRITER_H_
