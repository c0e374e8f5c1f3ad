// MetricsServer serves HTTP for monitoring, on an address of its own and without authentication:
//   GET /metrics   the page of metrics
//   GET /livez     200: the process answers
//   GET /readyz    200: jobs can run; 503: they cannot, and the body says why
// HEAD is answered as GET, without the body. Other methods get 405, and other paths 404. Nothing
// can be changed through the server. A reader that sends or takes nothing for two seconds is cut
// off.
//
// Thread safety: all methods may be called from any thread.
#ifndef MEGATRAIN_SERVER_METRICS_METRICS_SERVER_H_
#define MEGATRAIN_SERVER_METRICS_METRICS_SERVER_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"

struct mg_connection;
struct mg_context;

namespace megatrain {

inline constexpr char kDefaultMetricsAddress[] = "127.0.0.1:9464";

// Returns true if `address` has the form "HOST:PORT", for example 127.0.0.1:9464, localhost:9464 or
// [::1]:9464. PORT is from 0 to 65535.
bool IsHostPort(const std::string& address);

// Functions that answer requests. Both must be set. They are called on the server's threads, by 16
// at once at most, until the server is destroyed.
struct MetricsSources {
  std::function<std::string()> page;  // returns the body of /metrics
  // Returns OK, or why jobs cannot run yet, in a message that everybody may read.
  std::function<absl::Status()> ready;
};

class MetricsServer {
 public:
  // Begins to serve on `address`, a "HOST:PORT"; port 0 takes a free port. Returns InvalidArgument
  // if `address` is not of that form (IsHostPort), and Unavailable if the server cannot listen on
  // it.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address,
                                                              MetricsSources sources);
  // Waits for calls of the sources, which are not called afterwards. Answers under way may be cut
  // off.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // Returns the address given to Start, with the port that was taken in place of 0.
  const std::string& address() const { return address_; }

 private:
  explicit MetricsServer(MetricsSources sources) : sources_(std::move(sources)) {}

  static int HandleRequest(mg_connection* connection, void* self);
  static int NoteError(const mg_connection* connection, const char* message);

  const MetricsSources sources_;
  std::string address_;
  Mutex mutex_;
  std::string errors_ ABSL_GUARDED_BY(mutex_);  // while starting
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  mg_context* context_ = nullptr;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_METRICS_METRICS_SERVER_H_
