#include "server/daemon/refusal_monitor.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace megatrain {

RefusalMonitor::RefusalMonitor(DaemonMetrics* metrics,
                               std::function<void(const std::string& line)> log,
                               std::function<absl::Time()> now)
    : metrics_(metrics), log_(std::move(log)), now_(std::move(now)) {}

void RefusalMonitor::Add(const Refusal& refusal) {
  const bool connection = refusal.kind == Refusal::Kind::kConnection;
  if (connection) {
    metrics_->ConnectionRefused(refusal.reason);
  } else {
    metrics_->CallerRefused(refusal.reason);
  }
  std::string line = absl::StrCat("refused a ", connection ? "connection to " : "call from ",
                                  refusal.peer, ": ", refusal.reason, ": ", refusal.message);
  {
    MutexLock lock(&mutex_);
    Told& told = told_[refusal.reason];
    const absl::Time now = now_();
    if (now >= told.time && now < told.time + kLineInterval) {
      ++told.since;
      return;
    }
    if (told.since > 0) {
      absl::StrAppend(&line, " (and ", told.since, " more for this reason since ",
                      absl::FormatTime("%H:%M:%S", told.time, absl::UTCTimeZone()), " UTC)");
    }
    told = {now, 0};
  }
  log_(line);
}

}  // namespace megatrain
