#include "client/connection/server_address.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace megatrain::client {
namespace {

constexpr size_t kSocketPathBytesMax = sizeof(sockaddr_un::sun_path) - 1;

constexpr char kStart[] =
    "; is the daemon running? Start it with `megatraind serve`, or name another with --server";

absl::Status Invalid(const std::string& text, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("server \"", text, "\": ", why,
                                                 "; expects unix:PATH or HOST:PORT, as in ",
                                                 kDefaultServer, " or node7:9463"));
}

// 0, or why connecting fails.
int ConnectError(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  const int error =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno;
  close(fd);
  return error;
}

}  // namespace

absl::StatusOr<ServerAddress> ParseServerAddress(const std::string& text) {
  ServerAddress address;
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "unix:")) {
    // "unix:///run/x" is how gRPC writes an absolute path.
    if (absl::StartsWith(rest, "///")) rest.remove_prefix(2);
    if (rest.empty()) return Invalid(text, "the path is missing");
    std::error_code error;
    const std::filesystem::path path = std::filesystem::absolute(std::string(rest), error);
    if (error) return Invalid(text, error.message());
    address.socket_path = path.lexically_normal().string();
    if (address.socket_path.size() > kSocketPathBytesMax) {
      return Invalid(text, absl::StrCat("the path has ", address.socket_path.size(),
                                        " bytes; the system allows sockets ", kSocketPathBytesMax));
    }
    address.text = absl::StrCat("unix:", address.socket_path);
    return address;
  }
  const size_t colon = rest.rfind(':');
  if (absl::StrContains(rest, '/') || colon == absl::string_view::npos) {
    return Invalid(text, absl::StrContains(rest, '/') ? "is a path" : "the port is missing");
  }
  const absl::string_view host = rest.substr(0, colon);
  if (host.empty()) return Invalid(text, "the host is missing");
  if (absl::StrContains(host, ':') && !(absl::StartsWith(host, "[") && absl::EndsWith(host, "]"))) {
    return Invalid(text, "an IPv6 address is written in brackets, as in [::1]:9463");
  }
  const absl::string_view digits = rest.substr(colon + 1);
  int port = 0;
  if (digits.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(digits, &port) || port < 1 || port > 65535) {
    return Invalid(text, "the port is not a number from 1 to 65535");
  }
  address.text = text;
  return address;
}

absl::Status WhyTlsFails(const std::string& address, const std::string& words,
                         bool has_certificate) {
  const std::string lower = absl::AsciiStrToLower(words);
  const auto has = [&lower](absl::string_view part) { return absl::StrContains(lower, part); };
  std::string advice = kStart;
  if (has("verify failed")) {
    advice =
        "; the server's certificate is not vouched for by whom this client trusts, or has expired: "
        "name the file of its authority with `megatrain context add NAME SERVER --ca F` or "
        "MEGATRAIN_CA";
  } else if (has("not in peer certificate") || has("hostname verification")) {
    advice =
        "; the server's certificate is for other names: use one of those it is for (its subject "
        "alternative names)";
  } else if (has("wrong version number") || has("wrong_version_number") || has("packet length")) {
    advice = "; what answers there does not speak TLS: is it the daemon's port?";
  } else if (has_certificate && !has("refused") && !has("resol") && !has("no route")) {
    advice =
        "; the server may have refused the client certificate: it must be issued by the authority "
        "in "
        "its tls.client_ca, and not have expired";
  }
  return absl::UnavailableError(absl::StrCat("no answer from ", address, ": ", words, advice));
}

absl::Status WhyUnreachable(const ServerAddress& address, const absl::Status& otherwise) {
  const std::string start = kStart;
  switch (const int error = ConnectError(address.socket_path)) {
    case 0:
    case EAGAIN:
      return otherwise;
    case ENOENT:
      return absl::UnavailableError(absl::StrCat(address.text, ": there is no such socket", start));
    case ECONNREFUSED:
      return absl::UnavailableError(
          absl::StrCat(address.text, ": nobody listens on this socket", start));
    case EACCES:
      return absl::PermissionDeniedError(
          absl::StrCat(address.text,
                       ": this user may not connect to the socket; its directory or the group "
                       "megatrain decides who may"));
    default:
      return absl::UnavailableError(absl::StrCat(address.text, ": ", std::strerror(error), start));
  }
}

}  // namespace megatrain::client
