#include "engine/data/cache/reference_logps.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

constexpr size_t kElementBytes = 8;
constexpr size_t kDescriptors = 64;

}  // namespace

ReferenceLogps::ReferenceLogps(std::string directory, std::string key, int64_t sequences,
                               int64_t part_sequences, FileSystem* files)
    : directory_(std::move(directory)),
      key_(std::move(key)),
      sequences_(sequences),
      part_sequences_(part_sequences),
      files_(std::make_unique<BoundedFileSystem>(files, kDescriptors)),
      parts_(static_cast<size_t>((sequences + part_sequences - 1) / part_sequences)) {}

int64_t ReferenceLogps::part_end(int64_t part) const {
  return std::min(sequences_, (part + 1) * part_sequences_);
}

std::string ReferenceLogps::PartKey(int64_t part) const {
  return HashText(absl::StrCat(key_, "\n", part, " of ", parts(), ", ", part_begin(part), " to ",
                               part_end(part)));
}

std::string ReferenceLogps::PartName(int64_t part) const {
  return absl::StrCat("reference-", PartKey(part), ".cache");
}

bool ReferenceLogps::Open(int64_t part) {
  absl::StatusOr<std::unique_ptr<CacheFile>> file =
      CacheFile::Open(directory_, PartName(part), PartKey(part), kElementBytes, {}, files_.get());
  if (!file.ok() || (*file)->elements() < part_end(part) - part_begin(part) + 1) return false;
  parts_[static_cast<size_t>(part)] = *std::move(file);
  return true;
}

bool ReferenceLogps::OpenAll() {
  for (int64_t part = 0; part < parts(); ++part) {
    if (!Open(part)) return false;
  }
  return true;
}

absl::Status ReferenceLogps::Make(int64_t part, const std::vector<std::vector<double>>& logps) {
  const absl::StatusOr<FileInfo> before =
      files_->Examine(absl::StrCat(directory_, "/", PartName(part)));
  if (before.ok() && Open(part)) return absl::OkStatus();
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<CacheFileWriter> writer,
                      CacheFileWriter::Create(directory_, PartName(part), PartKey(part),
                                              kElementBytes, {}, files_.get(), before));
  if (writer != nullptr) {
    std::vector<uint64_t> begins = {logps.size() + 1};
    for (const std::vector<double>& values : logps) begins.push_back(begins.back() + values.size());
    MT_RETURN_IF_ERROR(writer->Append(begins.data(), begins.size()));
    for (const std::vector<double>& values : logps) {
      MT_RETURN_IF_ERROR(writer->Append(values.data(), values.size()));
    }
    MT_RETURN_IF_ERROR(writer->Finish(""));
  }
  if (Open(part)) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(directory_, "/", PartName(part), ": was just made and cannot be read"));
}

absl::StatusOr<std::vector<double>> ReferenceLogps::Read(int64_t sequence) const {
  const int64_t part = sequence / part_sequences_;
  const CacheFile& file = *parts_[static_cast<size_t>(part)];
  uint64_t bounds[2] = {0, 0};
  MT_RETURN_IF_ERROR(file.Read(sequence - part_begin(part), 2, bounds));
  const auto elements = static_cast<uint64_t>(file.elements());
  if (bounds[0] > bounds[1] || bounds[1] > elements) {
    // The next start makes it again.
    files_->RemoveFile(absl::StrCat(directory_, "/", PartName(part))).IgnoreError();
    return absl::DataLossError(absl::StrCat(directory_, "/", PartName(part), ": is damaged"));
  }
  std::vector<double> values(bounds[1] - bounds[0]);
  if (!values.empty()) {
    MT_RETURN_IF_ERROR(file.Read(static_cast<int64_t>(bounds[0]),
                                 static_cast<int64_t>(values.size()), values.data()));
  }
  return values;
}

}  // namespace megatrain
