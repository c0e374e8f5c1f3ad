// HTTP for machines that look at the daemon, on an address of its own:
//   GET /metrics   the page
//   GET /livez     200: the process answers
//   GET /readyz    200: jobs can run; 503 and why not
// Nothing else is there, and nothing can be changed through it.
//
// Thread safety: all methods may be called from any thread.
#ifndef MEGATRAIN_SERVER_METRICS_METRICS_SERVER_H_
#define MEGATRAIN_SERVER_METRICS_METRICS_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"

struct mg_connection;
struct mg_context;

namespace megatrain {

// Called on the server's threads, two at a time at most, until it is destroyed.
struct MetricsSources {
  std::function<std::string()> page;
  // OK, or why jobs cannot run yet; its message names nothing that not everybody may know.
  std::function<absl::Status()> ready;
};

class MetricsServer {
 public:
  // `address`: "HOST:PORT"; port 0 takes a free one. Unavailable: it cannot be listened on
  // now.
  static absl::StatusOr<std::unique_ptr<MetricsServer>> Start(const std::string& address,
                                                              MetricsSources sources);
  // Answers what is under way and returns.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  // "127.0.0.1:9464", with the port that was taken.
  const std::string& address() const { return address_; }

 private:
  explicit MetricsServer(MetricsSources sources) : sources_(std::move(sources)) {}

  static int HandleRequest(mg_connection* connection, void* self);
  static int NoteError(const mg_connection* connection, const char* message);

  const MetricsSources sources_;
  std::string address_;
  Mutex mutex_;
  std::string errors_ ABSL_GUARDED_BY(mutex_);  // while starting
  mg_context* context_ = nullptr;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_METRICS_METRICS_SERVER_H_
