#include "server/metrics/metrics_server.h"

#include <civetweb.h>

#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

// A connection takes a thread, also while its reader sends or takes nothing.
constexpr char kThreads[] = "16";
// A reader that sends or takes nothing for this long is cut off.
constexpr char kTimeoutMilliseconds[] = "2000";
// Requests have no body.
constexpr char kRequestBytesMax[] = "4096";
// With any, the library itself answers OPTIONS.
constexpr char kMethodsForOtherSites[] = "";

struct Answer {
  int code = 200;
  const char* reason = "OK";
  const char* content_type = "text/plain; charset=utf-8";
  std::string body;
};

Answer AnswerRequest(std::string_view method, std::string_view path,
                     const MetricsSources& sources) {
  if (method != "GET" && method != "HEAD") {
    return {.code = 405, .reason = "Method Not Allowed", .body = "only GET is answered here\n"};
  }
  if (path == "/metrics") {
    return {.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = sources.page()};
  }
  if (path == "/livez") return {.body = "ok\n"};
  if (path == "/readyz") {
    const absl::Status ready = sources.ready();
    if (ready.ok()) return {.body = "ok\n"};
    return {
        .code = 503, .reason = "Service Unavailable", .body = absl::StrCat(ready.message(), "\n")};
  }
  return {.code = 404, .reason = "Not Found", .body = "there are /metrics, /livez and /readyz\n"};
}

}  // namespace

bool IsHostPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  const std::string host = address.substr(0, colon);
  int port = -1;
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const bool good_host = !host.empty() && host.find_first_of(", \t/") == std::string::npos &&
                         (bracketed || host.find_first_of("[]:") == std::string::npos);
  return colon != std::string::npos && good_host &&
         address.find_first_not_of("0123456789", colon + 1) == std::string::npos &&
         absl::SimpleAtoi(address.substr(colon + 1), &port) && port <= 65535;
}

absl::StatusOr<std::unique_ptr<MetricsServer>> MetricsServer::Start(const std::string& address,
                                                                    MetricsSources sources) {
  // The library's own syntax has lists, and letters after the port.
  if (!IsHostPort(address)) {
    return absl::InvalidArgumentError(
        absl::StrCat("expects HOST:PORT, as in 127.0.0.1:9464, got ", address));
  }
  std::unique_ptr<MetricsServer> server(new MetricsServer(std::move(sources)));
  const char* options[] = {
      "listening_ports",
      address.c_str(),
      "num_threads",
      kThreads,
      "request_timeout_ms",
      kTimeoutMilliseconds,
      "max_request_size",
      kRequestBytesMax,
      "access_control_allow_methods",
      kMethodsForOtherSites,
      nullptr,
  };
  mg_callbacks callbacks = {};
  callbacks.log_message = NoteError;
  server->context_ = mg_start(&callbacks, server.get(), options);
  mg_server_port port = {};
  const bool listens =
      server->context_ != nullptr && mg_get_server_ports(server->context_, 1, &port) == 1;
  {
    MutexLock lock(&server->mutex_);
    server->started_ = true;
    if (!listens) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", address, ": ", server->errors_));
    }
  }
  server->address_ = absl::StrCat(address.substr(0, address.rfind(':')), ":", port.port);
  mg_set_request_handler(server->context_, "**", HandleRequest, server.get());
  return server;
}

MetricsServer::~MetricsServer() {
  if (context_ != nullptr) mg_stop(context_);
}

int MetricsServer::HandleRequest(mg_connection* connection, void* self) {
  const mg_request_info* const request = mg_get_request_info(connection);
  const Answer answer = AnswerRequest(request->request_method, request->local_uri,
                                      static_cast<MetricsServer*>(self)->sources_);
  mg_printf(connection,
            "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            answer.code, answer.reason, answer.content_type, answer.body.size());
  if (std::string_view(request->request_method) != "HEAD") {
    mg_write(connection, answer.body.data(), answer.body.size());
  }
  return answer.code;
}

int MetricsServer::NoteError(const mg_connection* connection, const char* message) {
  auto* const self = static_cast<MetricsServer*>(mg_get_user_data(mg_get_context(connection)));
  MutexLock lock(&self->mutex_);
  // Later ones are of readers that went away.
  if (!self->started_) {
    absl::StrAppend(&self->errors_, self->errors_.empty() ? "" : "; ", message);
  }
  return 1;  // said
}

}  // namespace megatrain
