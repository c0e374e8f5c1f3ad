#include "engine/job/data_paths.h"

#include <fnmatch.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "engine/job/data_format.h"

namespace megatrain {
namespace {

// Deeper than people nest; links that lead back into their own directory end here.
constexpr int kDepthMax = 32;

bool IsHidden(const std::string& name) { return name.front() == '.'; }
bool HasMagic(const std::string& text) { return text.find_first_of("*?[") != std::string::npos; }

// Finds the files of one entry.
class Finder {
 public:
  Finder(const DataFile& entry, FileSystem* files) : entry_(entry), files_(files) {}

  // Adds the data files in and beneath a directory.
  absl::Status AddDirectory(const std::string& directory, int depth) {
    MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, List(directory, depth));
    for (const std::string& name : names) {
      if (IsHidden(name)) continue;
      const std::string path = JoinPath(directory, name);
      if (files_->IsDirectory(path)) {
        MT_RETURN_IF_ERROR(AddDirectory(path, depth + 1));
        continue;
      }
      const FileKind kind = KindOfFile(name);
      if (!kind.known || !MayHold(kind, entry_.format)) {
        return absl::InvalidArgumentError(absl::StrCat(
            path, ": is in a directory of format ", DataFormatName(entry_.format),
            " and is no file of it; such a directory may hold ", FileNamesOf(entry_.format),
            " files; move this one elsewhere, or name the files with a pattern as ", entry_.path,
            "/*.jsonl"));
      }
      found_.push_back(path);
    }
    return absl::OkStatus();
  }

  // Adds what matches parts[at, end) in `directory`.
  absl::Status AddMatches(const std::string& directory, const std::vector<std::string>& parts,
                          size_t at, int depth) {
    const bool last = at + 1 == parts.size();
    if (!HasMagic(parts[at])) {
      const std::string path = JoinPath(directory, parts[at]);
      if (!last) return AddMatches(path, parts, at + 1, depth);
      return files_->FileExists(path) ? AddMatch(path, depth) : absl::OkStatus();
    }
    if (!files_->IsDirectory(directory)) return absl::OkStatus();
    const bool any_depth = parts[at] == "**";
    if (any_depth && !last) MT_RETURN_IF_ERROR(AddMatches(directory, parts, at + 1, depth));
    MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, List(directory, depth));
    for (const std::string& name : names) {
      const std::string path = JoinPath(directory, name);
      if (any_depth && !last) {
        if (IsHidden(name) || !files_->IsDirectory(path)) continue;
        MT_RETURN_IF_ERROR(AddMatches(path, parts, at, depth + 1));
      } else if (::fnmatch(parts[at].c_str(), name.c_str(), FNM_PERIOD) == 0) {
        MT_RETURN_IF_ERROR(last ? AddMatch(path, depth + 1)
                                : AddMatches(path, parts, at + 1, depth + 1));
      }
    }
    return absl::OkStatus();
  }

  // The paths found, each once.
  std::vector<std::string> Sorted() {
    std::sort(found_.begin(), found_.end());
    found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
    return std::move(found_);
  }

 private:
  absl::Status AddMatch(const std::string& path, int depth) {
    if (files_->IsDirectory(path)) return AddDirectory(path, depth);
    found_.push_back(path);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& directory, int depth) {
    if (depth > kDepthMax) {
      return absl::InvalidArgumentError(absl::StrCat(directory, ": is more than ", kDepthMax,
                                                     " directories deep in ", entry_.path,
                                                     "; a link may lead in a circle"));
    }
    MT_ASSIGN_OR_RETURN(std::vector<std::string> names, files_->ListDirectory(directory));
    seen_ += 1 + static_cast<int64_t>(names.size());
    if (seen_ > kDataPathsMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(entry_.path, ": leads to more than ", kDataPathsMax, " files"));
    }
    return names;
  }

  const DataFile& entry_;
  FileSystem* const files_;
  std::vector<std::string> found_;
  int64_t seen_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<DataFile>> ExpandDataFile(const DataFile& entry, FileSystem* files) {
  Finder finder(entry, files);
  if (files->IsDirectory(entry.path)) {
    MT_RETURN_IF_ERROR(finder.AddDirectory(entry.path, 0));
  } else if (HasMagic(entry.path) && !files->FileExists(entry.path)) {
    const std::vector<std::string> parts = absl::StrSplit(entry.path, '/', absl::SkipEmpty());
    const bool absolute = entry.path.front() == '/';
    MT_RETURN_IF_ERROR(finder.AddMatches(absolute ? "/" : "", parts, 0, 0));
  } else {
    MT_RETURN_IF_ERROR(CheckReadable(entry.path));
    return std::vector<DataFile>{entry};
  }
  std::vector<DataFile> found;
  for (std::string& path : finder.Sorted()) {
    MT_RETURN_IF_ERROR(CheckReadable(path));
    found.push_back(entry);
    found.back().path = std::move(path);
  }
  if (found.empty()) {
    return absl::InvalidArgumentError(
        files->IsDirectory(entry.path)
            ? absl::StrCat(entry.path, ": holds no data file; a directory of format ",
                           DataFormatName(entry.format), " may hold ", FileNamesOf(entry.format),
                           " files")
            : absl::StrCat(entry.path, ": no file matches this pattern"));
  }
  return found;
}

absl::StatusOr<std::vector<DataFile>> ExpandDataFiles(const std::vector<DataFile>& entries,
                                                      FileSystem* files) {
  std::vector<DataFile> all;
  for (const DataFile& entry : entries) {
    MT_ASSIGN_OR_RETURN(std::vector<DataFile> found, ExpandDataFile(entry, files));
    std::move(found.begin(), found.end(), std::back_inserter(all));
  }
  return all;
}

absl::Status CheckDataFiles(const std::vector<DataFile>& entries, FileSystem* files) {
  for (const DataFile& entry : entries) {
    MT_ASSIGN_OR_RETURN(const std::vector<DataFile> found, ExpandDataFile(entry, files));
    MT_RETURN_IF_ERROR(files->OpenForReading(found.front().path).status());
  }
  return absl::OkStatus();
}

}  // namespace megatrain
