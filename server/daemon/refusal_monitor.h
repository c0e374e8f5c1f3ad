// RefusalMonitor counts refused calls and connections in the metrics and logs them. The log gets
// lines at a bounded rate, so that neither a forgotten script nor an attacker fills it.
//
// Thread safety: all methods may be called from any thread.
#ifndef MEGATRAIN_SERVER_DAEMON_REFUSAL_MONITOR_H_
#define MEGATRAIN_SERVER_DAEMON_REFUSAL_MONITOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"
#include "server/metrics/daemon_metrics.h"
#include "server/transport/observers.h"

namespace megatrain {

class RefusalMonitor {
 public:
  // The least time between two lines of one reason, unless the clock is set back.
  static constexpr absl::Duration kLineInterval = absl::Minutes(1);

  // `metrics` must outlive the monitor. Add calls `now` under a lock. It calls `log` without one,
  // so that several threads may be in `log` at once.
  RefusalMonitor(DaemonMetrics* metrics, std::function<void(const std::string& line)> log,
                 std::function<absl::Time()> now = absl::Now);

  // Counts the refusal. Logs it if its reason has had no line within kLineInterval. The next line
  // for that reason says how many refusals had none. REQUIRES: few different reasons, because each
  // is remembered.
  void Add(const Refusal& refusal);

 private:
  struct Told {
    absl::Time time = absl::InfinitePast();
    int64_t since = 0;  // refusals that had no line
  };

  DaemonMetrics* const metrics_;
  const std::function<void(const std::string& line)> log_;
  const std::function<absl::Time()> now_;
  Mutex mutex_;
  std::map<std::string, Told> told_ ABSL_GUARDED_BY(mutex_);  // by reason, of which there are few
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_DAEMON_REFUSAL_MONITOR_H_
