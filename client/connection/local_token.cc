#include "client/connection/local_token.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace megatrain::client {
namespace {

constexpr timeval kTimeout = {.tv_sec = 5, .tv_usec = 0};
constexpr size_t kAnswerBytesMax = 4096;

absl::Status Failed(const std::string& path, int error) {
  const std::string message = absl::StrCat("unix:", path, ": ", std::strerror(error));
  if (error == ENOENT || error == ECONNREFUSED) return absl::NotFoundError(message);
  if (error == EACCES) return absl::PermissionDeniedError(message);
  return absl::UnavailableError(message);
}

// All that the companion sends.
absl::StatusOr<std::string> ReadAnswer(int fd, const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return Failed(path, ENOENT);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kTimeout, sizeof(kTimeout));  // of connect
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kTimeout, sizeof(kTimeout));
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Failed(path, errno);
  }
  std::string answer;
  char buffer[512];
  while (answer.size() < kAnswerBytesMax) {
    const ssize_t bytes = read(fd, buffer, sizeof(buffer));
    if (bytes == 0) return answer;
    if (bytes < 0 && errno != EINTR) return Failed(path, errno);
    if (bytes > 0) answer.append(buffer, static_cast<size_t>(bytes));
  }
  return absl::UnavailableError(absl::StrCat("unix:", path, ": the answer is too long"));
}

}  // namespace

absl::StatusOr<LocalToken> FetchLocalToken(const std::string& socket_path) {
  const std::string path = socket_path + ".auth";
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::UnavailableError(std::strerror(errno));
  const absl::StatusOr<std::string> answer = ReadAnswer(fd, path);
  close(fd);
  if (!answer.ok()) return answer.status();
  const nlohmann::json json = nlohmann::json::parse(*answer, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("error") && json["error"].is_string()) {
    return absl::UnauthenticatedError(json["error"].get<std::string>());
  }
  if (!json.is_object() || !json.contains("token") || !json["token"].is_string() ||
      !json.contains("lifetime_seconds") || !json["lifetime_seconds"].is_number_integer()) {
    return absl::UnavailableError(absl::StrCat("unix:", path, ": the answer is not a token"));
  }
  return LocalToken{json["token"].get<std::string>(),
                    absl::Seconds(json["lifetime_seconds"].get<int64_t>())};
}

}  // namespace megatrain::client
