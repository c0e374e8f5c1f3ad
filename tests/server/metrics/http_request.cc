#include "tests/server/metrics/http_request.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

namespace megatrain {

HttpAnswer SendHttp(const std::string& address, const std::string& text) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + address.rfind(':') + 1)));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  HttpAnswer answer;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0 &&
      send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size())) {
    std::string all;
    char buffer[4096];
    ssize_t got = 0;
    while ((got = read(fd, buffer, sizeof(buffer))) > 0) all.append(buffer, got);
    const size_t end = all.find("\r\n\r\n");
    if (all.size() > 12 && end != std::string::npos) {
      answer.code = std::atoi(all.c_str() + 9);
      answer.head = all.substr(0, end);
      answer.body = all.substr(end + 4);
    }
  }
  close(fd);
  return answer;
}

}  // namespace megatrain
