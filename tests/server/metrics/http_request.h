// A request by hand, to a server on this machine.
#ifndef MEGATRAIN_TESTS_SERVER_METRICS_HTTP_REQUEST_H_
#define MEGATRAIN_TESTS_SERVER_METRICS_HTTP_REQUEST_H_

#include <string>

namespace megatrain {

struct HttpAnswer {
  int code = 0;  // 0 = no answer
  std::string head, body;
};

// Sends `text` as it is to "127.0.0.1:PORT" and reads to the end.
HttpAnswer SendHttp(const std::string& address, const std::string& text);

inline HttpAnswer HttpGet(const std::string& address, const std::string& path,
                          const std::string& method = "GET") {
  return SendHttp(address,
                  method + " " + path + " HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_SERVER_METRICS_HTTP_REQUEST_H_
