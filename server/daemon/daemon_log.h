// DaemonLog writes the daemon's own log. An entry is a plain line on standard error, which begins
// with "megatraind: ". If standard error leads to the systemd journal, it is an entry of the
// journal instead, with fields by which it can be found: `journalctl MEGATRAIN_JOB=jobs/ID`.
//
// Thread safety: all methods may be called from any thread.
// Invariants: an entry is one line. ASCII control characters in names and messages become spaces.
#ifndef MEGATRAIN_SERVER_DAEMON_DAEMON_LOG_H_
#define MEGATRAIN_SERVER_DAEMON_DAEMON_LOG_H_

#include <sys/uio.h>

#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "server/worker/job_runner.h"

namespace megatrain {

// The values are the priorities' numbers in syslog and the journal.
enum class LogPriority { kError = 3, kWarning = 4, kInfo = 6 };
// Returns the priority of "error" or "warning", and kInfo for any other text.
LogPriority LogPriorityOf(const std::string& level);

class DaemonLog {
 public:
  // Sends one entry of `count` fields, "NAME=value" each, which are valid during the call. Returns
  // a negative errno if it fails. sd_journal_sendv is such a function.
  using SendToJournal = std::function<int(const iovec* fields, int count)>;

  // Writes to standard error, or to the journal if JOURNAL_STREAM says that it leads there.
  DaemonLog();
  // Writes to the journal by `send`, and to standard error if `send` is empty or fails. Several
  // threads may call `send` at once.
  explicit DaemonLog(SendToJournal send) : send_(std::move(send)) {}

  // Leaves out, from now on, entries that matter less than `level`.
  void SetLevel(LogPriority level) { level_ = level; }

  // Writes an entry of priority kInfo that is not about a job.
  void Write(const std::string& line) const { Write(LogPriority::kInfo, line, nullptr); }
  // Writes an entry. `run` is the run that the entry is about; null: none. It is used during the
  // call only. The id and the name of its job come before `line`.
  void Write(LogPriority priority, const std::string& line, const RunRequest* run) const;

 private:
  const SendToJournal send_;  // empty: lines
  std::atomic<LogPriority> level_{LogPriority::kInfo};
};

// RunLog logs these events of each run: its steps begin, a checkpoint is saved or could not be
// saved, it pauses, it ends. Failures are warnings, and errors if the job has failed or is lost.
//
// Thread safety: Tell may be called from any thread.
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
