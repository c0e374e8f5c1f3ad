#include "engine/data/data_file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/file.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

constexpr size_t kHashChunkBytes = size_t{1} << 20;

std::string Hex(XXH128_hash_t hash) {
  return absl::StrFormat("%016x%016x", static_cast<uint64_t>(hash.high64),
                         static_cast<uint64_t>(hash.low64));
}

}  // namespace

absl::Status ErrnoStatus(const std::string& path, std::string_view what, int error) {
  const std::string message = absl::StrCat(path, ": ", absl::string_view(what.data(), what.size()),
                                           ": ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) return DiskFullError(message);
  return absl::Status(absl::ErrnoToStatusCode(error), message);
}

absl::StatusOr<std::unique_ptr<DataFileReader>> DataFileReader::Open(const std::string& path) {
  // O_NONBLOCK: a FIFO is refused below instead of waiting here for its writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoStatus(path, "cannot be opened", errno);
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    const int error = errno;
    ::close(fd);
    return ErrnoStatus(path, "cannot be examined", error);
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", S_ISDIR(info.st_mode) ? "is a directory" : "is not a regular file",
                     "; a data file is needed"));
  }
  return std::unique_ptr<DataFileReader>(new DataFileReader(path, fd, info.st_size));
}

DataFileReader::~DataFileReader() { ::close(fd_); }

absl::StatusOr<size_t> DataFileReader::ReadUpTo(int64_t offset, void* to, size_t bytes) const {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got = ::pread(fd_, static_cast<char*>(to) + done, bytes - done,
                                offset + static_cast<int64_t>(done));
    if (got < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(path_, "cannot be read", errno);
    }
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

absl::Status DataFileReader::ReadAt(int64_t offset, void* to, size_t bytes) const {
  MT_ASSIGN_OR_RETURN(const size_t done, ReadUpTo(offset, to, bytes));
  if (done < bytes) {
    return absl::DataLossError(absl::StrCat(path_, ": ends at byte ", offset + done,
                                            ", before byte ", offset + bytes,
                                            ": it was cut short while in use"));
  }
  return absl::OkStatus();
}

struct HashingStream::Hash {
  XXH3_state_t* state = XXH3_createState();
  Hash() { XXH3_128bits_reset(state); }
  ~Hash() { XXH3_freeState(state); }
};

HashingStream::HashingStream(const DataFileReader* file)
    : file_(file), hash_(std::make_unique<Hash>()) {}
HashingStream::~HashingStream() = default;

absl::StatusOr<size_t> HashingStream::Read(void* to, size_t bytes) {
  MT_ASSIGN_OR_RETURN(const size_t got, file_->ReadUpTo(offset_, to, bytes));
  XXH3_128bits_update(hash_->state, to, got);
  offset_ += static_cast<int64_t>(got);
  return got;
}

std::string HashingStream::Digest() const { return Hex(XXH3_128bits_digest(hash_->state)); }

absl::StatusOr<std::string> HashDataFile(const DataFileReader& file, const ByteProgress& progress) {
  HashingStream stream(&file);
  std::vector<char> buffer(kHashChunkBytes);
  while (true) {
    MT_ASSIGN_OR_RETURN(const size_t got, stream.Read(buffer.data(), buffer.size()));
    if (got == 0) return stream.Digest();
    if (progress) MT_RETURN_IF_ERROR(progress(static_cast<int64_t>(got)));
  }
}

std::string HashText(std::string_view text) { return Hex(XXH3_128bits(text.data(), text.size())); }

}  // namespace megatrain
