#include "engine/data/cache/token_cache.h"

#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

constexpr char kMagic[9] = "MTCACHE3";
constexpr size_t kBufferBytes = size_t{1} << 20;  // whole blocks
static_assert(kBufferBytes % kCacheBlockBytes == 0);
constexpr uint64_t kMetaBytesMax = uint64_t{1} << 24;
// Short beside making such a file, and no load.
constexpr std::chrono::milliseconds kLockPoll{50};

uint64_t TrailerHash(const CacheTrailer& trailer) {
  return XXH3_64bits(&trailer, offsetof(CacheTrailer, trailer_xxh3));
}

// The checksums of the blocks of `bytes` bytes, of which the first begins a block.
void AppendSums(const char* data, size_t bytes, std::vector<uint64_t>* sums) {
  for (size_t at = 0; at < bytes; at += kCacheBlockBytes) {
    sums->push_back(XXH3_64bits(data + at, std::min<size_t>(kCacheBlockBytes, bytes - at)));
  }
}

absl::Status Explained(const absl::Status& status) {
  if (status.ok() || absl::IsCancelled(status)) return status;
  const std::string message =
      absl::StrCat(status.message(), " (prepared data; data.cache_directory moves it)");
  return IsDiskFull(status) ? DiskFullError(message) : absl::Status(status.code(), message);
}

bool Same(const FileInfo& a, const FileInfo& b) {
  return a.device == b.device && a.inode == b.inode && a.bytes == b.bytes &&
         a.modified == b.modified;
}

// The lock on `path`, waited for. Null if FINAL is there and is not the file `replaced`.
absl::StatusOr<std::unique_ptr<FileLock>> LockTemporary(FileSystem* files, const std::string& path,
                                                        const std::string& final_path,
                                                        const absl::StatusOr<FileInfo>& replaced,
                                                        const ByteProgress& progress) {
  while (true) {
    absl::StatusOr<std::unique_ptr<FileLock>> lock = files->TryLock(path);
    if (!lock.ok()) return Explained(lock.status());
    if (*lock != nullptr) {
      // Looked at even without a wait: the former holder may have ended since the caller looked.
      const absl::StatusOr<FileInfo> now = files->Examine(final_path);
      if (!now.ok() || (replaced.ok() && Same(*now, *replaced))) return lock;
      files->RemoveFile(path).IgnoreError();  // made by locking it
      return nullptr;
    }
    if (progress) MT_RETURN_IF_ERROR(progress(0));
    std::this_thread::sleep_for(kLockPoll);
  }
}

}  // namespace

struct CacheFileWriter::State {
  FileSystem* files = nullptr;
  std::string directory;
  std::string path;
  std::string temporary;
  std::unique_ptr<FileLock> lock;  // on `temporary`
  std::unique_ptr<WritableFile> file;
  bool finished = false;
  CacheTrailer trailer = {};
  std::vector<char> buffer;
  std::vector<uint64_t> sums;  // of the blocks written
  size_t written_bytes = 0;

  ~State() {
    // Removed while the lock is held: nobody else's file can bear the name.
    if (lock != nullptr && !finished) files->RemoveFile(temporary).IgnoreError();
  }

  // REQUIRES: the buffer is full, or nothing follows.
  absl::Status Flush() {
    MT_RETURN_IF_ERROR(Write(buffer.data(), buffer.size()));
    AppendSums(buffer.data(), buffer.size(), &sums);
    buffer.clear();
    return absl::OkStatus();
  }
  absl::Status Write(const void* from, size_t bytes) {
    written_bytes += bytes;
    return Explained(file->Append(from, static_cast<int64_t>(bytes)));
  }
};

CacheFileWriter::CacheFileWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
CacheFileWriter::~CacheFileWriter() = default;

absl::StatusOr<std::unique_ptr<CacheFileWriter>> CacheFileWriter::Create(
    const std::string& directory, const std::string& name, const std::string& key,
    size_t element_bytes, const ByteProgress& progress, FileSystem* files,
    const absl::StatusOr<FileInfo>& replaced) {
  MT_RETURN_IF_ERROR(Explained(files->CreateDirectories(directory)));
  auto state = std::make_unique<State>();
  state->files = files;
  state->directory = directory;
  state->path = absl::StrCat(directory, "/", name);
  state->temporary = absl::StrCat(state->path, ".tmp");
  MT_ASSIGN_OR_RETURN(state->lock,
                      LockTemporary(files, state->temporary, state->path, replaced, progress));
  if (state->lock == nullptr) return std::unique_ptr<CacheFileWriter>();
  absl::StatusOr<std::unique_ptr<WritableFile>> file = files->NewWritableFile(state->temporary);
  if (!file.ok()) return Explained(file.status());
  state->file = *std::move(file);
  std::memcpy(state->trailer.magic, kMagic, sizeof(state->trailer.magic));
  state->trailer.element_bytes = static_cast<uint32_t>(element_bytes);
  state->trailer.block_bytes = kCacheBlockBytes;
  std::memcpy(state->trailer.key, key.data(), std::min(key.size(), sizeof(state->trailer.key)));
  state->buffer.reserve(kBufferBytes);
  return std::unique_ptr<CacheFileWriter>(new CacheFileWriter(std::move(state)));
}

absl::Status CacheFileWriter::Append(const void* elements, size_t count) {
  const char* from = static_cast<const char*>(elements);
  size_t bytes = count * state_->trailer.element_bytes;
  state_->trailer.elements += count;
  while (bytes > 0) {
    const size_t take = std::min(bytes, kBufferBytes - state_->buffer.size());
    state_->buffer.insert(state_->buffer.end(), from, from + take);
    from += take;
    bytes -= take;
    if (state_->buffer.size() == kBufferBytes) MT_RETURN_IF_ERROR(state_->Flush());
  }
  return absl::OkStatus();
}

absl::Status CacheFileWriter::Finish(const std::string& meta) {
  State& state = *state_;
  MT_RETURN_IF_ERROR(state.Flush());
  MT_RETURN_IF_ERROR(state.Write(state.sums.data(), state.sums.size() * sizeof(uint64_t)));
  MT_RETURN_IF_ERROR(state.Write(meta.data(), meta.size()));
  state.trailer.meta_bytes = meta.size();
  state.trailer.meta_xxh3 = XXH3_64bits(meta.data(), meta.size());
  state.trailer.trailer_xxh3 = TrailerHash(state.trailer);
  MT_RETURN_IF_ERROR(state.Write(&state.trailer, sizeof(state.trailer)));
  const bool synced = state.written_bytes >= kSyncedBytesMin;
  if (synced) MT_RETURN_IF_ERROR(Explained(state.file->Sync()));
  MT_RETURN_IF_ERROR(Explained(state.file->Close()));
  MT_RETURN_IF_ERROR(Explained(state.files->Rename(state.temporary, state.path)));
  state.finished = true;
  return synced ? Explained(state.files->SyncDirectory(state.directory)) : absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CacheFile>> CacheFile::Open(
    const std::string& directory, const std::string& name, const std::string& key,
    size_t element_bytes, const ByteProgress& progress, FileSystem* files, bool verify) {
  const std::string path = absl::StrCat(directory, "/", name);
  MT_ASSIGN_OR_RETURN(std::unique_ptr<DataFileReader> reader, DataFileReader::Open(path, files));
  const auto damaged = [&path](const char* what) {
    return absl::DataLossError(absl::StrCat(path, ": ", what));
  };
  CacheTrailer trailer = {};
  const int64_t rest = reader->size() - static_cast<int64_t>(sizeof(trailer));
  if (rest < 0) return damaged("is shorter than its trailer");
  MT_RETURN_IF_ERROR(reader->ReadAt(rest, &trailer, sizeof(trailer)));
  if (std::memcmp(trailer.magic, kMagic, sizeof(trailer.magic)) != 0) {
    return damaged("is no file of prepared data of this version");
  }
  if (trailer.trailer_xxh3 != TrailerHash(trailer)) return damaged("its trailer is damaged");
  CacheTrailer expected = {};
  std::memcpy(expected.key, key.data(), std::min(key.size(), sizeof(expected.key)));
  if (trailer.element_bytes != element_bytes ||
      std::memcmp(trailer.key, expected.key, sizeof(trailer.key)) != 0) {
    return damaged("is prepared from other data");
  }
  // Divided, not multiplied, as nothing is known of the numbers but their checksum.
  const uint64_t before = static_cast<uint64_t>(rest);
  const uint64_t payload = trailer.elements * element_bytes;
  const uint64_t sums =
      (payload / kCacheBlockBytes + (payload % kCacheBlockBytes != 0 ? 1 : 0)) * sizeof(uint64_t);
  if (trailer.block_bytes != kCacheBlockBytes || trailer.meta_bytes > kMetaBytesMax ||
      trailer.elements > before / element_bytes || payload + sums + trailer.meta_bytes != before) {
    return damaged("its size is not what its trailer says");
  }
  std::string meta(static_cast<size_t>(trailer.meta_bytes), '\0');
  MT_RETURN_IF_ERROR(
      reader->ReadAt(static_cast<int64_t>(payload + sums), meta.data(), meta.size()));
  if (XXH3_64bits(meta.data(), meta.size()) != trailer.meta_xxh3) {
    return damaged("its description is damaged");
  }
  std::unique_ptr<CacheFile> cache(new CacheFile(std::move(reader), files, element_bytes,
                                                 static_cast<int64_t>(trailer.elements),
                                                 std::move(meta)));
  if (!verify) return cache;
  std::vector<char> buffer(kBufferBytes);
  for (int64_t at = 0; at < cache->payload_bytes(); at += static_cast<int64_t>(kBufferBytes)) {
    const int64_t end = std::min(cache->payload_bytes(), at + static_cast<int64_t>(kBufferBytes));
    MT_RETURN_IF_ERROR(cache->ReadChecked(at, end, buffer.data()));
    if (progress) MT_RETURN_IF_ERROR(progress(0));
  }
  return cache;
}

absl::Status CacheFile::ReadChecked(int64_t begin, int64_t end, char* to) const {
  if (begin == end) return absl::OkStatus();
  constexpr int64_t kBlock = kCacheBlockBytes;
  const int64_t first = begin / kBlock * kBlock;
  const int64_t last = std::min(payload_bytes(), (end + kBlock - 1) / kBlock * kBlock);
  std::vector<char> blocks(static_cast<size_t>(last - first));
  MT_RETURN_IF_ERROR(reader_->ReadAt(first, blocks.data(), blocks.size()));
  std::vector<uint64_t> read;
  AppendSums(blocks.data(), blocks.size(), &read);
  std::vector<uint64_t> sums(read.size());
  const int64_t sums_offset =
      payload_bytes() + first / kBlock * static_cast<int64_t>(sizeof(uint64_t));
  MT_RETURN_IF_ERROR(reader_->ReadAt(sums_offset, sums.data(), sums.size() * sizeof(uint64_t)));
  if (read != sums) {
    files_->RemoveFile(reader_->path()).IgnoreError();
    return absl::DataLossError(absl::StrCat(reader_->path(), ": its content is damaged near byte ",
                                            first,
                                            "; it was removed, and is made again from the data "
                                            "when the job is started again"));
  }
  std::memcpy(to, blocks.data() + (begin - first), static_cast<size_t>(end - begin));
  return absl::OkStatus();
}

absl::Status CacheFile::Read(int64_t first, int64_t count, void* elements) const {
  const int64_t bytes = static_cast<int64_t>(element_bytes_);
  return ReadChecked(first * bytes, (first + count) * bytes, static_cast<char*>(elements));
}

}  // namespace megatrain
