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
#include "absl/time/clock.h"

namespace megatrain::client {
namespace {

constexpr size_t kAnswerBytesMax = 4096;

absl::Status Failed(const std::string& path, int error) {
  const std::string message = absl::StrCat("unix:", path, ": ", std::strerror(error));
  if (error == ENOENT || error == ECONNREFUSED) return absl::NotFoundError(message);
  if (error == EACCES) return absl::PermissionDeniedError(message);
  return absl::UnavailableError(message);
}

// All that the companion sends.
absl::StatusOr<std::string> ReadAnswer(int fd, const std::string& path, absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return Failed(path, ENOENT);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const timeval connecting = absl::ToTimeval(timeout);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &connecting, sizeof(connecting));
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return Failed(path, errno);
  }
  std::string answer;
  char buffer[512];
  while (answer.size() < kAnswerBytesMax) {
    const timeval left = absl::ToTimeval(end - absl::Now());
    // None left, or 0, would be no limit.
    if (left.tv_sec < 0 || (left.tv_sec == 0 && left.tv_usec == 0)) return Failed(path, ETIMEDOUT);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &left, sizeof(left));
    const ssize_t bytes = read(fd, buffer, sizeof(buffer));
    if (bytes == 0) return answer;
    if (bytes < 0 && errno != EINTR) return Failed(path, errno);
    if (bytes > 0) answer.append(buffer, static_cast<size_t>(bytes));
  }
  return absl::UnavailableError(absl::StrCat("unix:", path, ": the answer is too long"));
}

}  // namespace

absl::StatusOr<LocalToken> FetchLocalToken(const std::string& socket_path, absl::Duration timeout) {
  const std::string path = socket_path + ".auth";
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::UnavailableError(std::strerror(errno));
  const absl::StatusOr<std::string> answer = ReadAnswer(fd, path, timeout);
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
