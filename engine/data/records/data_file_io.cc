#include "engine/data/records/data_file_io.h"

#include <xxhash.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

constexpr size_t kHashChunkBytes = size_t{1} << 20;

std::string Hex(XXH128_hash_t hash) {
  return absl::StrFormat("%016x%016x", static_cast<uint64_t>(hash.high64),
                         static_cast<uint64_t>(hash.low64));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DataFileReader>> DataFileReader::Open(const std::string& path,
                                                                     FileSystem* files) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, files->OpenForReading(path));
  return std::unique_ptr<DataFileReader>(new DataFileReader(std::move(file)));
}

absl::StatusOr<size_t> DataFileReader::ReadUpTo(int64_t offset, void* to, size_t bytes) const {
  MT_ASSIGN_OR_RETURN(const int64_t got, file_->ReadUpTo(offset, to, static_cast<int64_t>(bytes)));
  return static_cast<size_t>(got);
}

absl::Status DataFileReader::ReadAt(int64_t offset, void* to, size_t bytes) const {
  MT_ASSIGN_OR_RETURN(const size_t done, ReadUpTo(offset, to, bytes));
  if (done < bytes) {
    return absl::DataLossError(absl::StrCat(path(), ": ends at byte ", offset + done,
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
