// The daemon's own log: plain lines on standard error. If that is the journal's stream, entries of
// the journal instead, with fields by which they are found: `journalctl MEGATRAIN_JOB=jobs/ID`.
//
// Thread safety: all methods may be called from any thread.
// Invariants: an entry is one line, whatever names and messages hold.
#ifndef MEGATRAIN_SERVER_DAEMON_DAEMON_LOG_H_
#define MEGATRAIN_SERVER_DAEMON_DAEMON_LOG_H_

#include <sys/uio.h>

#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "server/worker/job_runner.h"

namespace megatrain {

// By their numbers in syslog and the journal.
enum class LogPriority { kError = 3, kWarning = 4, kInfo = 6 };
// Of "error", "warning"; anything else is "info".
LogPriority LogPriorityOf(const std::string& level);

class DaemonLog {
 public:
  // An entry as "NAME=value" each: sd_journal_sendv, or a test's. 0, or an error as -errno.
  using SendToJournal = std::function<int(const iovec* fields, int count)>;

  // To the journal if JOURNAL_STREAM says that standard error leads there.
  DaemonLog();
  // To the journal by `send`; to standard error if it is empty.
  explicit DaemonLog(SendToJournal send) : send_(std::move(send)) {}

  // Entries that matter less are left out from now on.
  void SetLevel(LogPriority level) { level_ = level; }

  void Write(const std::string& line) const { Write(LogPriority::kInfo, line, nullptr); }
  // `run`: the job that it is about; null: none.
  void Write(LogPriority priority, const std::string& line, const RunRequest* run) const;

 private:
  const SendToJournal send_;  // empty: lines
  std::atomic<LogPriority> level_{LogPriority::kInfo};
};

// Tells the log what becomes of jobs.
class RunLog : public RunObserver {
 public:
  // `log` must outlive this.
  explicit RunLog(const DaemonLog* log) : log_(log) {}

  void Tell(const RunRequest& run, const JobRunEvent& event) override;

 private:
  const DaemonLog* const log_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_DAEMON_DAEMON_LOG_H_
