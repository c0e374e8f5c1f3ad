#include "engine/data/token_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

constexpr char kMagic[9] = "MTCACHE1";
constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr uint64_t kMetaBytesMax = uint64_t{1} << 24;
// Short beside making such a file, and no load.
constexpr std::chrono::milliseconds kLockPoll{50};

uint64_t HeaderHash(const CacheHeader& header) {
  return XXH3_64bits(&header, offsetof(CacheHeader, header_xxh3));
}

absl::Status WriteAt(const std::string& path, int fd, int64_t offset, const void* from,
                     size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t put = ::pwrite(fd, static_cast<const char*>(from) + done, bytes - done,
                                 offset + static_cast<int64_t>(done));
    if (put < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(path, "cannot be written (prepared data; data.cache_directory moves it)",
                         errno);
    }
    done += static_cast<size_t>(put);
  }
  return absl::OkStatus();
}

absl::Status SyncDirectory(const std::string& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoStatus(directory, "cannot be opened", errno);
  const int result = ::fsync(fd);
  const int error = errno;
  ::close(fd);
  // Some file systems cannot sync a directory (EINVAL); losing the name costs only a second making.
  if (result != 0 && error != EINVAL) return ErrnoStatus(directory, "cannot be synced", error);
  return absl::OkStatus();
}

// Opens PATH for writing with the lock on it held. -1 if meanwhile FINAL has come into being by
// another process's work.
absl::StatusOr<int> LockTemporary(const std::string& path, const std::string& final_path,
                                  const ByteProgress& progress) {
  bool waited = false;
  while (true) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    if (fd < 0) {
      return ErrnoStatus(path, "cannot be made (prepared data; data.cache_directory moves it)",
                         errno);
    }
    // Any other failure (a file system without locks) costs only that two may do the same work.
    while (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      waited = true;
      const absl::Status go_on = progress ? progress(0) : absl::OkStatus();
      if (!go_on.ok()) {
        ::close(fd);
        return go_on;
      }
      std::this_thread::sleep_for(kLockPoll);
    }
    // Whoever held the lock may have renamed or removed the file that is now locked here.
    struct stat held, named;
    const bool same = ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
                      held.st_ino == named.st_ino && held.st_dev == named.st_dev;
    if (same) return fd;
    ::close(fd);
    if (waited && ::access(final_path.c_str(), F_OK) == 0) return -1;
  }
}

}  // namespace

struct CacheFileWriter::State {
  std::string directory;
  std::string path;
  std::string temporary;
  int fd = -1;
  bool finished = false;
  CacheHeader header = {};
  std::vector<char> buffer;
  int64_t written = sizeof(CacheHeader);  // bytes in the file
  XXH3_state_t* hash = XXH3_createState();

  ~State() {
    // Removed while the lock is held: nobody else's file can bear the name.
    if (fd >= 0 && !finished) ::unlink(temporary.c_str());
    if (fd >= 0) ::close(fd);
    XXH3_freeState(hash);
  }

  absl::Status Flush() {
    MT_RETURN_IF_ERROR(WriteAt(temporary, fd, written, buffer.data(), buffer.size()));
    XXH3_64bits_update(hash, buffer.data(), buffer.size());
    written += static_cast<int64_t>(buffer.size());
    buffer.clear();
    return absl::OkStatus();
  }
};

CacheFileWriter::CacheFileWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
CacheFileWriter::~CacheFileWriter() = default;

absl::StatusOr<std::unique_ptr<CacheFileWriter>> CacheFileWriter::Create(
    const std::string& directory, const std::string& name, const std::string& key,
    size_t element_bytes, const ByteProgress& progress) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) {
    return ErrnoStatus(directory, "cannot be made (prepared data; data.cache_directory moves it)",
                       error.value());
  }
  auto state = std::make_unique<State>();
  state->directory = directory;
  state->path = absl::StrCat(directory, "/", name);
  state->temporary = absl::StrCat(state->path, ".tmp");
  MT_ASSIGN_OR_RETURN(state->fd, LockTemporary(state->temporary, state->path, progress));
  if (state->fd < 0) return std::unique_ptr<CacheFileWriter>();
  if (::ftruncate(state->fd, 0) != 0) return ErrnoStatus(state->temporary, "cannot be cut", errno);
  std::memcpy(state->header.magic, kMagic, sizeof(state->header.magic));
  state->header.element_bytes = static_cast<uint32_t>(element_bytes);
  std::memcpy(state->header.key, key.data(), std::min(key.size(), sizeof(state->header.key)));
  state->buffer.reserve(kBufferBytes);
  XXH3_64bits_reset(state->hash);
  return std::unique_ptr<CacheFileWriter>(new CacheFileWriter(std::move(state)));
}

absl::Status CacheFileWriter::Append(const void* elements, size_t count) {
  const char* from = static_cast<const char*>(elements);
  size_t bytes = count * state_->header.element_bytes;
  state_->header.elements += count;
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
  MT_RETURN_IF_ERROR(WriteAt(state.temporary, state.fd, state.written, meta.data(), meta.size()));
  state.header.payload_xxh3 = XXH3_64bits_digest(state.hash);
  state.header.meta_bytes = meta.size();
  state.header.meta_xxh3 = XXH3_64bits(meta.data(), meta.size());
  state.header.header_xxh3 = HeaderHash(state.header);
  MT_RETURN_IF_ERROR(WriteAt(state.temporary, state.fd, 0, &state.header, sizeof(state.header)));
  if (::fsync(state.fd) != 0) return ErrnoStatus(state.temporary, "cannot be synced", errno);
  if (::rename(state.temporary.c_str(), state.path.c_str()) != 0) {
    return ErrnoStatus(state.temporary, "cannot be renamed", errno);
  }
  state.finished = true;
  return SyncDirectory(state.directory);
}

absl::StatusOr<std::unique_ptr<CacheFile>> CacheFile::Open(const std::string& directory,
                                                           const std::string& name,
                                                           const std::string& key,
                                                           size_t element_bytes,
                                                           const ByteProgress& progress) {
  const std::string path = absl::StrCat(directory, "/", name);
  MT_ASSIGN_OR_RETURN(std::unique_ptr<DataFileReader> reader, DataFileReader::Open(path));
  const auto damaged = [&path](const char* what) {
    return absl::DataLossError(absl::StrCat(path, ": ", what));
  };
  CacheHeader header = {};
  MT_ASSIGN_OR_RETURN(const size_t got, reader->ReadUpTo(0, &header, sizeof(header)));
  if (got < sizeof(header)) return damaged("is shorter than its header");
  if (std::memcmp(header.magic, kMagic, sizeof(header.magic)) != 0) {
    return damaged("is no file of prepared data of this version");
  }
  if (header.header_xxh3 != HeaderHash(header)) return damaged("its header is damaged");
  CacheHeader expected = {};
  std::memcpy(expected.key, key.data(), std::min(key.size(), sizeof(expected.key)));
  if (header.element_bytes != element_bytes ||
      std::memcmp(header.key, expected.key, sizeof(header.key)) != 0) {
    return damaged("is prepared from other data");
  }
  const uint64_t rest = static_cast<uint64_t>(reader->size()) - sizeof(header);
  // Divided, not multiplied, as nothing is known of the numbers but their checksum.
  if (header.meta_bytes > kMetaBytesMax || header.meta_bytes > rest ||
      (rest - header.meta_bytes) % element_bytes != 0 ||
      (rest - header.meta_bytes) / element_bytes != header.elements) {
    return damaged("its size is not what its header says");
  }
  XXH3_state_t* const state = XXH3_createState();
  XXH3_64bits_reset(state);
  std::vector<char> buffer(kBufferBytes);
  uint64_t left = rest - header.meta_bytes;
  int64_t offset = sizeof(header);
  absl::Status read;
  while (left > 0 && read.ok()) {
    const size_t take = static_cast<size_t>(std::min<uint64_t>(left, buffer.size()));
    read = reader->ReadAt(offset, buffer.data(), take);
    if (read.ok()) XXH3_64bits_update(state, buffer.data(), take);
    if (read.ok() && progress) read = progress(0);
    offset += static_cast<int64_t>(take);
    left -= take;
  }
  const uint64_t payload_hash = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  MT_RETURN_IF_ERROR(read);
  if (payload_hash != header.payload_xxh3) return damaged("its content is damaged");
  std::string meta(static_cast<size_t>(header.meta_bytes), '\0');
  MT_RETURN_IF_ERROR(reader->ReadAt(offset, meta.data(), meta.size()));
  if (XXH3_64bits(meta.data(), meta.size()) != header.meta_xxh3) {
    return damaged("its description is damaged");
  }
  return std::unique_ptr<CacheFile>(new CacheFile(
      std::move(reader), element_bytes, static_cast<int64_t>(header.elements), std::move(meta)));
}

absl::Status CacheFile::Read(int64_t first, int64_t count, void* elements) const {
  return reader_->ReadAt(
      static_cast<int64_t>(sizeof(CacheHeader)) + first * static_cast<int64_t>(element_bytes_),
      elements, static_cast<size_t>(count) * element_bytes_);
}

}  // namespace megatrain
