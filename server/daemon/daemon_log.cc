#include "server/daemon/daemon_log.h"

#include <sys/stat.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace megatrain {
namespace {

// systemd.exec(5): "DEVICE:INODE" of the stream, in decimal.
bool StandardErrorIsTheJournals() {
  const char* const stream = getenv("JOURNAL_STREAM");
  struct stat status = {};
  if (stream == nullptr || fstat(STDERR_FILENO, &status) != 0) return false;
  return absl::StrCat(status.st_dev, ":", status.st_ino) == stream;
}

// In one line: a line end would begin another entry.
std::string OneLine(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return text;
}

std::string EndText(const RunEnd& end) {
  switch (end.kind) {
    case RunEnd::Kind::kFinished:
      return "has finished";
    case RunEnd::Kind::kReleased:
      return "is paused; its state is saved and its memory given back";
    case RunEnd::Kind::kStopped:
      return end.status.ok()
                 ? "is stopped, to go on later"
                 : absl::StrCat("is stopped without being saved: ", end.status.message());
    case RunEnd::Kind::kLost:
      return absl::StrCat("is lost: ", end.status.message());
    case RunEnd::Kind::kCancelled:
      return "is cancelled";
    case RunEnd::Kind::kNotStarted:
      return absl::StrCat("could not be started: ", end.status.message());
    case RunEnd::Kind::kFailed:
      return absl::StrCat("has failed: ", end.status.message());
  }
  return "has ended";
}

}  // namespace

LogPriority LogPriorityOf(const std::string& level) {
  if (level == "error") return LogPriority::kError;
  return level == "warning" ? LogPriority::kWarning : LogPriority::kInfo;
}

DaemonLog::DaemonLog()
    : send_(StandardErrorIsTheJournals() ? SendToJournal([](const iovec* fields, int count) {
        return sd_journal_sendv(fields, count);
      })
                                         : SendToJournal()) {}

void DaemonLog::Write(LogPriority priority, const std::string& line, const RunRequest* run) const {
  if (priority > level_.load()) return;
  const std::string message =
      run == nullptr ? OneLine(line)
                     : OneLine(absl::StrCat("job ", run->job_id, " (", run->spec.name, ") ", line));
  if (send_) {
    std::vector<std::string> entry = {absl::StrCat("MESSAGE=", message),
                                      absl::StrCat("PRIORITY=", static_cast<int>(priority)),
                                      "SYSLOG_IDENTIFIER=megatraind"};
    if (run != nullptr) {
      entry.push_back(absl::StrCat("MEGATRAIN_JOB=jobs/", run->job_id));
      entry.push_back(absl::StrCat("MEGATRAIN_JOB_NAME=", OneLine(run->spec.name)));
    }
    std::vector<iovec> fields;
    for (std::string& field : entry) fields.push_back({field.data(), field.size()});
    if (send_(fields.data(), static_cast<int>(fields.size())) >= 0) return;
  }
  // At once, so that lines of several threads do not mix.
  std::fputs(absl::StrCat("megatraind: ", message, "\n").c_str(), stderr);
}

void RunLog::Tell(const RunRequest& run, const JobRunEvent& event) {
  const auto write = [&](LogPriority priority, const std::string& line) {
    log_->Write(priority, line, &run);
  };
  std::visit(
      Overloaded{
          [&](const StepsBegin& begin) {
            write(LogPriority::kInfo, absl::StrFormat("trains from step %d of %d", begin.first_step,
                                                      begin.total_steps));
          },
          [&](const CheckpointSaved& saved) {
            write(LogPriority::kInfo,
                  absl::StrFormat("is saved at step %d, in %.1f s", saved.step, saved.seconds));
          },
          [&](const CheckpointFailed& failed) {
            write(LogPriority::kWarning,
                  absl::StrCat("could not be saved at step ", failed.step,
                               ", the checkpoint before is kept: ", failed.status.message()));
          },
          [&](const TrainingPause& pause) {
            if (pause.status.ok()) return write(LogPriority::kInfo, "is paused");
            write(LogPriority::kWarning, absl::StrCat("is paused: ", pause.status.message()));
          },
          [&](const RunEnd& end) {
            const bool error = end.kind == RunEnd::Kind::kFailed || end.kind == RunEnd::Kind::kLost;
            write(error             ? LogPriority::kError
                  : end.status.ok() ? LogPriority::kInfo
                                    : LogPriority::kWarning,
                  EndText(end));
          },
          [](const auto&) {}},
      event);
}

}  // namespace megatrain
