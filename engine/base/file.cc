#include "engine/base/file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

// Large enough that a write call's cost vanishes, small beside any tile.
constexpr int64_t kBufferBytes = int64_t{1} << 20;
constexpr int64_t kReadBytes = int64_t{4} << 20;

constexpr char kDiskFullPayload[] = "megatrain/disk-full";

}  // namespace

absl::Status FileError(const char* operation, const std::string& path, int error, int64_t bytes) {
  const char* reason = std::strerror(error);
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return DiskFullError(
          bytes > 0 ? absl::StrCat("disk full writing ", path, ": ", bytes, " bytes did not fit (",
                                   reason, ")")
                    : absl::StrCat("disk full: cannot ", operation, " ", path, " (", reason, ")"));
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(absl::StrCat("cannot ", operation, " ", path, ": ", reason));
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(
          absl::StrCat("cannot ", operation, " ", path, ": ", reason));
    case ENAMETOOLONG:
    case ELOOP:
      return absl::InvalidArgumentError(
          absl::StrCat("cannot ", operation, " ", path, ": ", reason));
    default:
      return absl::InternalError(absl::StrCat("cannot ", operation, " ", path, ": ", reason));
  }
}

absl::StatusOr<std::unique_ptr<BlockFile>> FileSystem::OpenBlockFile(const std::string& path,
                                                                     int64_t) {
  return absl::UnimplementedError(
      absl::StrCat("cannot open ", path, " for several processes to write"));
}

absl::Status RandomAccessFile::Read(int64_t offset, void* out, int64_t bytes) const {
  MT_ASSIGN_OR_RETURN(const int64_t got, ReadUpTo(offset, out, bytes));
  if (got == bytes) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(path(), " ends at byte ", offset + got, ", ", bytes - got, " bytes too early"));
}

absl::Status DiskFullError(std::string_view message) {
  absl::Status status =
      absl::ResourceExhaustedError(absl::string_view(message.data(), message.size()));
  status.SetPayload(kDiskFullPayload, absl::Cord());
  return status;
}

bool IsDiskFull(const absl::Status& status) {
  return status.GetPayload(kDiskFullPayload).has_value();
}

std::string ParentDirectory(const std::string& path) {
  size_t end = path.size();
  while (end > 1 && path[end - 1] == '/') --end;  // "a/b/" is "a/b"
  const size_t slash = path.rfind('/', end == 0 ? 0 : end - 1);
  if (slash == std::string::npos) return ".";
  if (slash == 0) return "/";
  return path.substr(0, slash);
}

std::string JoinPath(const std::string& a, const std::string& b) {
  if (a.empty()) return b;
  if (a.back() == '/') return absl::StrCat(a, b);
  return absl::StrCat(a, "/", b);
}

FileWriter::FileWriter(std::string path, std::unique_ptr<WritableFile> file)
    : path_(std::move(path)), file_(std::move(file)), buffer_(kBufferBytes) {}

FileWriter::~FileWriter() = default;

absl::StatusOr<std::unique_ptr<FileWriter>> FileWriter::Create(FileSystem* files,
                                                               const std::string& path) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files->NewWritableFile(path));
  return std::unique_ptr<FileWriter>(new FileWriter(path, std::move(file)));
}

absl::Status FileWriter::Append(const void* data, int64_t bytes) {
  if (bytes == 0) return absl::OkStatus();
  hash_.Update(data, bytes);
  bytes_ += bytes;
  if (buffered_ + bytes > kBufferBytes) MT_RETURN_IF_ERROR(Flush());
  if (bytes >= kBufferBytes) return file_->Append(data, bytes);
  std::memcpy(buffer_.data() + buffered_, data, bytes);
  buffered_ += bytes;
  return absl::OkStatus();
}

absl::Status FileWriter::Flush() {
  if (buffered_ == 0) return absl::OkStatus();
  const int64_t bytes = std::exchange(buffered_, 0);
  return file_->Append(buffer_.data(), bytes);
}

absl::Status FileWriter::SyncAndClose() {
  MT_RETURN_IF_ERROR(Flush());
  MT_RETURN_IF_ERROR(file_->Sync());
  return file_->Close();
}

std::string HashBytes(std::string_view bytes) {
  ContentHash hash;
  hash.Update(bytes.data(), static_cast<int64_t>(bytes.size()));
  return hash.Hex();
}

absl::StatusOr<std::string> HashFile(FileSystem* files, const std::string& path, int64_t* bytes) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, files->OpenForReading(path));
  ContentHash hash;
  std::vector<char> buffer(std::min(kReadBytes, file->size()));
  for (int64_t offset = 0; offset < file->size();) {
    const int64_t length = std::min(kReadBytes, file->size() - offset);
    MT_RETURN_IF_ERROR(file->Read(offset, buffer.data(), length));
    hash.Update(buffer.data(), length);
    offset += length;
  }
  if (bytes != nullptr) *bytes = file->size();
  return hash.Hex();
}

absl::StatusOr<std::string> ReadWholeFile(FileSystem* files, const std::string& path,
                                          int64_t bytes_max) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, files->OpenForReading(path));
  if (file->size() > bytes_max) {
    return absl::OutOfRangeError(absl::StrCat(path, " has ", file->size(), " bytes; at most ",
                                              bytes_max, " are expected of this file"));
  }
  std::string content(file->size(), '\0');
  MT_RETURN_IF_ERROR(file->Read(0, content.data(), file->size()));
  return content;
}

absl::Status WriteFileSynced(FileSystem* files, const std::string& path, std::string_view content) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, files->NewWritableFile(path));
  MT_RETURN_IF_ERROR(file->Append(content.data(), static_cast<int64_t>(content.size())));
  MT_RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

absl::Status AtomicWriteFile(FileSystem* files, const std::string& path, std::string_view content) {
  const std::string temporary = absl::StrCat(path, ".tmp");
  MT_RETURN_IF_ERROR(WriteFileSynced(files, temporary, content));
  MT_RETURN_IF_ERROR(files->Rename(temporary, path));
  return files->SyncDirectory(ParentDirectory(path));
}

absl::StatusOr<int64_t> CopyFileSynced(FileSystem* files, const std::string& from,
                                       const std::string& to) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> in, files->OpenForReading(from));
  MT_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> out, files->NewWritableFile(to));
  std::vector<char> buffer(std::min(kReadBytes, in->size()));
  for (int64_t offset = 0; offset < in->size();) {
    const int64_t length = std::min(kReadBytes, in->size() - offset);
    MT_RETURN_IF_ERROR(in->Read(offset, buffer.data(), length));
    MT_RETURN_IF_ERROR(out->Append(buffer.data(), length));
    offset += length;
  }
  MT_RETURN_IF_ERROR(out->Sync());
  MT_RETURN_IF_ERROR(out->Close());
  return in->size();
}

}  // namespace megatrain
