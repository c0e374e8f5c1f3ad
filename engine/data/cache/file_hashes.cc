#include "engine/data/cache/file_hashes.h"

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

// The file: this line, a line for each known file, and the XXH3-128 of all that.
constexpr char kFirstLine[] = "megatrain hashes 2";
constexpr int64_t kBytesMax = int64_t{1} << 30;
constexpr absl::Duration kSaveInterval = absl::Seconds(10);

// The times of files are as fine as a clock tick, or a second or two on some file systems. Those
// are told by whole seconds.
absl::Duration Granularity(absl::Time time) {
  return absl::ToUnixNanos(time) % 1000000000 == 0 ? absl::Seconds(3) : absl::Milliseconds(50);
}

std::string HashesPath(const std::string& directory) { return directory + "/hashes.cache"; }

}  // namespace

FileHashes::FileHashes(std::string directory, bool forget, FileSystem* files)
    : directory_(std::move(directory)), files_(files), saved_(absl::Now()) {
  MutexLock lock(&mutex_);
  if (!forget) table_ = Read();
}

FileHashes::Table FileHashes::Read() const {
  const absl::StatusOr<std::string> text = ReadWholeFile(files_, HashesPath(directory_), kBytesMax);
  if (!text.ok()) return {};
  const std::vector<absl::string_view> lines = absl::StrSplit(*text, '\n', absl::SkipEmpty());
  if (lines.size() < 2 || lines.front() != kFirstLine) return {};
  const size_t body = static_cast<size_t>(lines.back().data() - text->data());
  if (lines.back() != HashBytes(std::string_view(*text).substr(0, body))) return {};
  Table table;
  for (size_t i = 1; i + 1 < lines.size(); ++i) {
    const std::vector<std::string> words = absl::StrSplit(lines[i], ' ');
    std::pair<uint64_t, uint64_t> file;
    Known known;
    if (words.size() != 8 || !absl::SimpleAtoi(words[0], &file.first) ||
        !absl::SimpleAtoi(words[1], &file.second) || !absl::SimpleAtoi(words[2], &known.bytes) ||
        !absl::SimpleAtoi(words[3], &known.modified) ||
        !absl::SimpleAtoi(words[4], &known.changed) || words[5].size() != 32 ||
        !absl::SimpleAtoi(words[6], &known.hash.id_bytes) ||
        !absl::SimpleAtoi(words[7], &known.hash.largest_id)) {
      return {};
    }
    known.hash.hash = words[5];
    table[file] = known;
  }
  return table;
}

std::optional<FileHash> FileHashes::Find(const FileInfo& info) const {
  MutexLock lock(&mutex_);
  const auto found = table_.find({info.device, info.inode});
  if (found == table_.end() || found->second.bytes != info.bytes ||
      found->second.modified != absl::ToUnixNanos(info.modified) ||
      found->second.changed != absl::ToUnixNanos(info.changed)) {
    return std::nullopt;
  }
  return found->second.hash;
}

void FileHashes::Remember(const FileInfo& info, const FileHash& hash, absl::Time now) {
  if (info.changed + Granularity(info.changed) > now) return;
  MutexLock lock(&mutex_);
  const Known known = {info.bytes, absl::ToUnixNanos(info.modified),
                       absl::ToUnixNanos(info.changed), hash};
  table_[{info.device, info.inode}] = known;
  learnt_[{info.device, info.inode}] = known;
}

absl::Status FileHashes::Save() {
  MutexLock lock(&mutex_);
  return Write();
}

absl::Status FileHashes::SaveIfDue() {
  MutexLock lock(&mutex_);
  return absl::Now() - saved_ < kSaveInterval ? absl::OkStatus() : Write();
}

absl::Status FileHashes::Write() {
  if (learnt_.empty()) return absl::OkStatus();
  saved_ = absl::Now();
  MT_RETURN_IF_ERROR(files_->CreateDirectories(directory_));
  // The name that AtomicWriteFile writes to: two at a time would write into one file, and each
  // would leave out what the other adds.
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<FileLock> lock_on_file,
                      files_->TryLock(HashesPath(directory_) + ".tmp"));
  if (lock_on_file == nullptr) return absl::OkStatus();
  Table all = Read();
  for (const auto& [file, known] : learnt_) all[file] = known;
  std::string text = absl::StrCat(kFirstLine, "\n");
  for (const auto& [file, known] : all) {
    absl::StrAppend(&text, file.first, " ", file.second, " ", known.bytes, " ", known.modified, " ",
                    known.changed, " ", known.hash.hash, " ", known.hash.id_bytes, " ",
                    known.hash.largest_id, "\n");
  }
  absl::StrAppend(&text, HashBytes(text), "\n");
  MT_RETURN_IF_ERROR(AtomicWriteFile(files_, HashesPath(directory_), text));
  learnt_.clear();
  return absl::OkStatus();
}

}  // namespace megatrain
