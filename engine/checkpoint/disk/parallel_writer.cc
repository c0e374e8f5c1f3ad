#include "engine/checkpoint/disk/parallel_writer.h"

#include <algorithm>
#include <utility>

#include "engine/base/content_hash.h"
#include "engine/base/status.h"
#include "engine/base/thread_name.h"

namespace megatrain {

// The counters change under the writer's mutex.
struct ParallelWriter::File {
  std::unique_ptr<BlockFile> file;
  std::vector<FilePiece> pieces;
  std::vector<FileRange> blocks;
  size_t next = 0;      // the block to claim next
  int64_t bytes = 0;    // of all blocks
  int64_t claimed = 0;  // bytes that a thread has taken
  int64_t copied = 0;   // bytes whose memory is not needed any more
  int64_t written = 0;  // bytes
};

namespace {

// An empty file has an empty block, so that it is made too.
std::vector<FileRange> BlocksOf(const std::vector<FileRange>& ranges) {
  std::vector<FileRange> blocks;
  for (FileRange range : ranges) {
    do {
      blocks.push_back({range.begin, std::min(range.begin + kTransferBlockBytes, range.end)});
      range.begin = blocks.back().end;
    } while (range.begin < range.end);
  }
  return blocks;
}

}  // namespace

ParallelWriter::~ParallelWriter() { EndThreads(); }

void ParallelWriter::EndThreads() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
    work_.NotifyAll();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  MutexLock lock(&mutex_);
  stop_ = false;
}

absl::StatusOr<std::vector<std::string>> ParallelWriter::Write(std::vector<FileToWrite> new_files) {
  std::vector<std::shared_ptr<File>> files;
  for (FileToWrite& one : new_files) {
    auto file = std::make_shared<File>();
    file->pieces = std::move(one.pieces);
    if (!one.shared) {
      one.bytes = 0;
      for (const FilePiece& piece : file->pieces) one.bytes += piece.bytes;
      one.ranges = {{0, one.bytes}};
    }
    file->blocks = BlocksOf(one.ranges);
    for (const FileRange& block : file->blocks) file->bytes += block.end - block.begin;
    if (one.shared && file->blocks.empty()) {
      files.push_back(std::move(file));  // is only hashed
      continue;
    }
    absl::StatusOr<std::unique_ptr<BlockFile>> opened =
        one.shared ? files_->OpenBlockFile(one.path, one.bytes)
                   : files_->NewBlockFile(one.path, one.bytes);
    if (!opened.ok()) {
      MutexLock lock(&mutex_);
      Fail(opened.status());
      break;
    }
    file->file = *std::move(opened);
    files.push_back(file);
    StartThreads(1 + file->bytes / kTransferBlockBytes);
    // The disk has work again before the next file is made.
    MutexLock lock(&mutex_);
    if (!status_.ok()) break;
    claimable_.push_back(std::move(file));
    work_.NotifyAll();
  }
  // Beside the threads, which wait for the disk most of the time.
  std::vector<std::string> hashes;
  for (const std::shared_ptr<File>& file : files) {
    ContentHash hash;
    for (const FilePiece& piece : file->pieces) hash.Update(piece.data, piece.bytes);
    hashes.push_back(hash.Hex());
  }
  MutexLock lock(&mutex_);
  while (!Copied(files)) progress_.Wait(&mutex_);
  MT_RETURN_IF_ERROR(status_);
  return hashes;
}

void ParallelWriter::StartThreads(int64_t blocks) {
  const auto useful = static_cast<size_t>(
      std::min<int64_t>(static_cast<int64_t>(threads_.size()) + blocks, kTransferThreads));
  while (threads_.size() < useful) threads_.emplace_back([this] { Work(); });
}

bool ParallelWriter::Copied(absl::Span<const std::shared_ptr<File>> files) const {
  for (const std::shared_ptr<File>& file : files) {
    // After an error no more blocks are claimed.
    if (file->copied != (status_.ok() ? file->bytes : file->claimed)) return false;
  }
  return true;
}

void ParallelWriter::Fail(const absl::Status& status) {
  status_.Update(status);
  claimable_.clear();
}

absl::Status ParallelWriter::Finish() {
  {
    MutexLock lock(&mutex_);
    while (status_.ok() && (!claimable_.empty() || busy_ > 0)) progress_.Wait(&mutex_);
  }
  EndThreads();
  MutexLock lock(&mutex_);
  return status_;
}

bool ParallelWriter::direct() const {
  MutexLock lock(&mutex_);
  return direct_;
}

absl::Status ParallelWriter::WriteBlock(File& file, int64_t offset, const char* block,
                                        int64_t bytes) {
  MT_RETURN_IF_ERROR(file.file->Write(offset, block, bytes));
  {
    MutexLock lock(&mutex_);
    file.written += bytes;
    if (file.written < file.bytes) return absl::OkStatus();
  }
  MT_RETURN_IF_ERROR(file.file->Sync());
  MT_RETURN_IF_ERROR(file.file->Close());
  MutexLock lock(&mutex_);
  if (!file.file->direct()) direct_ = false;
  return absl::OkStatus();
}

void ParallelWriter::Work() {
  NameThisThread("save");
  const TransferBlock block;
  while (true) {
    std::shared_ptr<File> file;
    int64_t offset = 0, bytes = 0;
    {
      MutexLock lock(&mutex_);
      while (claimable_.empty() && !stop_) work_.Wait(&mutex_);
      if (stop_) return;
      file = claimable_.front();
      const FileRange& block = file->blocks[file->next++];
      offset = block.begin;
      bytes = block.end - block.begin;
      file->claimed += bytes;
      if (file->next == file->blocks.size()) claimable_.pop_front();
      ++busy_;
    }
    CopyFromPieces(file->pieces, offset, block.data(), bytes);
    {
      MutexLock lock(&mutex_);
      file->copied += bytes;
      progress_.NotifyAll();
    }
    const absl::Status status = WriteBlock(*file, offset, block.data(), bytes);
    MutexLock lock(&mutex_);
    --busy_;
    if (!status.ok()) Fail(status);
    progress_.NotifyAll();
  }
}

}  // namespace megatrain
