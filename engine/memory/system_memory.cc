#include "engine/memory/system_memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/base/bytes.h"

namespace megatrain {
namespace {

// v1 writes "no limit" as the largest multiple of a page; anything of that order is no limit.
constexpr int64_t kNoLimit = int64_t{1} << 60;

std::optional<std::string> ReadText(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// A file that holds one number; nothing if it is absent, "max" or something else.
std::optional<int64_t> ReadNumber(const std::string& path) {
  const std::optional<std::string> text = ReadText(path);
  uint64_t value = 0;
  if (!text || !absl::SimpleAtoi(*text, &value)) return std::nullopt;
  return static_cast<int64_t>(std::min<uint64_t>(value, kNoLimit));
}

// The number after `key` in lines of "key value".
std::optional<int64_t> ReadKey(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  std::string word;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    int64_t value = 0;
    if (fields >> word >> value && word == key) return value;
  }
  return std::nullopt;
}

// Returns the bytes that one group directory leaves, or nullopt if it sets no limit.
std::optional<int64_t> GroupLeaves(const std::string& directory, const char* limit_file,
                                   const char* usage_file, const char* inactive_key) {
  const std::optional<int64_t> limit = ReadNumber(absl::StrCat(directory, "/", limit_file));
  const std::optional<int64_t> usage = ReadNumber(absl::StrCat(directory, "/", usage_file));
  if (!limit || !usage || *limit >= kNoLimit) return std::nullopt;
  const std::optional<std::string> stat = ReadText(absl::StrCat(directory, "/memory.stat"));
  const int64_t inactive = stat ? ReadKey(*stat, inactive_key).value_or(0) : 0;
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *usage - inactive));
}

// `root` + "/a/b", `root` + "/a", `root`: a limit above binds as well. Inside a container the path
// may name directories that are not mounted: only the root is found then.
std::vector<std::string> GroupAndParents(const std::string& root, std::string path) {
  std::vector<std::string> directories;
  while (!path.empty() && path != "/") {
    directories.push_back(root + path);
    path.resize(path.find_last_of('/') == std::string::npos ? 0 : path.find_last_of('/'));
  }
  directories.push_back(root);
  return directories;
}

}  // namespace

int64_t FreeHugePageBytes(int64_t page_bytes, const SystemMemoryPaths& paths) {
  const std::string directory =
      absl::StrCat(paths.huge_pages, "/hugepages-", page_bytes / kKiB, "kB/");
  const int64_t free = ReadNumber(directory + "free_hugepages").value_or(0);
  const int64_t promised = ReadNumber(directory + "resv_hugepages").value_or(0);
  return std::max<int64_t>(0, free - promised) * page_bytes;
}

absl::StatusOr<int64_t> AvailableMemoryBytes(const SystemMemoryPaths& paths) {
  const std::optional<std::string> meminfo = ReadText(paths.meminfo);
  if (!meminfo) return absl::NotFoundError(absl::StrCat(paths.meminfo, ": cannot be read"));
  const std::optional<int64_t> available_kib = ReadKey(*meminfo, "MemAvailable:");
  if (!available_kib) {
    return absl::DataLossError(absl::StrCat(paths.meminfo, ": has no line MemAvailable"));
  }
  int64_t available = *available_kib * kKiB;

  // Lines are "hierarchy:controllers:path"; v2 is hierarchy 0 without controllers.
  const std::string groups = ReadText(paths.cgroup).value_or("");
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(groups, '\n'))) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    const bool v2 = fields[0] == "0" && fields[1].empty();
    const bool v1 =
        std::find(controllers.begin(), controllers.end(), "memory") != controllers.end();
    if (!v1 && !v2) continue;
    const std::string root = v2 ? paths.cgroup_root : paths.cgroup_root + "/memory";
    for (const std::string& directory : GroupAndParents(root, fields[2])) {
      const std::optional<int64_t> leaves =
          v2 ? GroupLeaves(directory, "memory.max", "memory.current", "inactive_file")
             : GroupLeaves(directory, "memory.limit_in_bytes", "memory.usage_in_bytes",
                           "total_inactive_file");
      if (leaves) available = std::min(available, *leaves);
    }
  }
  return available;
}

}  // namespace megatrain
