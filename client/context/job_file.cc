#include "client/context/job_file.h"

#include <simdjson.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "client/output/text.h"
#include "engine/base/directories/file_place.h"
#include "engine/base/status.h"

namespace megatrain::client {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFileBytesMax = size_t{1} << 20;

absl::Status CannotRead(const std::string& path, int error) {
  return absl::InvalidArgumentError(absl::StrCat("cannot read ", path, ": ", strerror(error)));
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  const bool standard_input = path == "-";
  const std::unique_ptr<FILE, int (*)(FILE*)> opened(
      standard_input ? nullptr : std::fopen(path.c_str(), "rbe"),
      [](FILE* file) { return file == nullptr ? 0 : std::fclose(file); });
  FILE* const file = standard_input ? stdin : opened.get();
  if (file == nullptr) return CannotRead(path, errno);
  std::string text(kFileBytesMax + 1, '\0');
  errno = 0;
  text.resize(std::fread(text.data(), 1, text.size(), file));
  if (std::ferror(file) != 0) return CannotRead(path, errno);
  if (text.size() > kFileBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is larger than 1 MiB, which no job file is"));
  }
  return text;
}

// The API's texts are UTF-8, and gRPC's own error names neither the text nor what is wrong.
absl::Status CheckUtf8(const std::string& what, const std::string& text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " is not UTF-8 text"));
}

absl::StatusOr<std::string> Absolute(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  if (error) return absl::InvalidArgumentError(absl::StrCat(path, ": ", error.message()));
  return absolute.lexically_normal().string();
}

}  // namespace

absl::StatusOr<v1::JobFile> ReadJobFile(const std::string& path,
                                        const std::vector<std::string>& overrides,
                                        const ServerAddress& server) {
  v1::JobFile file;
  MT_ASSIGN_OR_RETURN(*file.mutable_yaml(), ReadText(path));
  file.set_file_name(path == "-" ? "standard input" : fs::path(path).filename().string());
  MT_RETURN_IF_ERROR(CheckUtf8(Printable(path), file.yaml()));
  MT_RETURN_IF_ERROR(CheckUtf8("the job file's name", file.file_name()));
  for (const std::string& each : overrides) {
    MT_RETURN_IF_ERROR(CheckUtf8(absl::StrCat("--set ", Printable(each)), each));
    file.add_overrides(each);
  }
  if (server.local()) {
    MT_ASSIGN_OR_RETURN(*file.mutable_base_directory(),
                        DirectoryOfFile(path == "-" ? "./job" : path));
    MT_RETURN_IF_ERROR(CheckUtf8(absl::StrCat("the path ", Printable(file.base_directory())),
                                 file.base_directory()));
  }
  return file;
}

absl::StatusOr<std::string> PathOnServer(const std::string& path, const ServerAddress& server) {
  MT_RETURN_IF_ERROR(CheckUtf8(absl::StrCat("the path ", Printable(path)), path));
  if (server.local() || (!path.empty() && path.front() == '/')) return Absolute(path);
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", path, "\": ", server.text, " is another machine; give an absolute path there"));
}

}  // namespace megatrain::client
