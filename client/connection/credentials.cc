#include "client/connection/credentials.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace megatrain::client {
namespace {

enum class Kept { kPublic, kSecret };

// Empty for an empty path.
absl::StatusOr<std::string> Read(const std::string& path, Kept kept) {
  if (path.empty()) return std::string();
  struct stat info = {};
  // O_NONBLOCK: a FIFO of that name does not hold us up.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const absl::Cleanup closes = [file] {
    if (file >= 0) close(file);
  };
  if (file < 0 || fstat(file, &info) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", path, ": ", strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  }
  if (kept == Kept::kSecret && (info.st_mode & 077) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": others than its owner may read it; chmod 0600 ", path));
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  const ssize_t bytes = read(file, text.data(), text.size());
  if (bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", path, ": ", strerror(errno)));
  }
  text.resize(static_cast<size_t>(bytes));
  if (text.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": is empty"));
  return text;
}

}  // namespace

absl::StatusOr<Credentials> ReadCredentials(const CredentialFiles& files) {
  if (files.certificate.empty() != files.key.empty()) {
    return absl::InvalidArgumentError("a client certificate and its key belong together");
  }
  Credentials credentials;
  MT_ASSIGN_OR_RETURN(credentials.ca, Read(files.ca, Kept::kPublic));
  MT_ASSIGN_OR_RETURN(credentials.certificate, Read(files.certificate, Kept::kPublic));
  MT_ASSIGN_OR_RETURN(credentials.key, Read(files.key, Kept::kSecret));
  MT_ASSIGN_OR_RETURN(std::string token, Read(files.token, Kept::kSecret));
  credentials.token = std::string(absl::StripAsciiWhitespace(token));
  if (!files.token.empty() && !IsToken(credentials.token)) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.token, ": is not a token, as `megatraind token add` prints it"));
  }
  return credentials;
}

bool IsToken(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return absl::ascii_isgraph(c); });
}

}  // namespace megatrain::client
