#include "client/watch/watch_session.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "absl/time/clock.h"
#include "client/watch/event_queue.h"
#include "client/watch/screen.h"
#include "client/watch/watch_json.h"
#include "client/watch/watch_lines.h"
#include "client/watch/watch_model.h"
#include "client/watch/watch_streams.h"
#include "client/watch/watch_view.h"

namespace megatrain::client {
namespace {

// Redrawn at most this often, and at least once a second for what the clock changes.
constexpr absl::Duration kDrawInterval = absl::Milliseconds(100);
constexpr absl::Duration kDrawIntervalMax = absl::Seconds(1);

bool IsLive(const Invocation& invocation) {
  return invocation.environment().is_terminal && !invocation.quiet &&
         invocation.format() == OutputFormat::kTable;
}

class WatchSession {
 public:
  WatchSession(const Invocation& invocation, SignalWatch* signals)
      : environment_(invocation.environment()), invocation_(invocation), signals_(signals) {
    if (IsLive(invocation)) screen_ = std::make_unique<Screen>(environment_.out);
  }

  // Until the streams have ended or a signal came.
  absl::Status Run(EventQueue* queue) {
    while (true) {
      if (absl::Now() < last_draw_) last_draw_ = absl::InfinitePast();  // the clock was set back
      pollfd ready[] = {{queue->fd(), POLLIN, 0}, {signals_->fd(), POLLIN, 0}};
      // Without a descriptor for the queue nothing wakes poll(2).
      poll(ready, 2, queue->fd() < 0 ? 100 : PollMilliseconds());
      while (const std::optional<int> signal = signals_->Take()) {
        if (IsLeaving(*signal)) return absl::CancelledError("detached; the job goes on");
      }
      for (const WatchEvent& event : queue->TakeAll()) {
        Apply(event);
        if (!failure_.ok()) return failure_;
        if (ended_.size() == 3) return absl::OkStatus();
      }
      if (screen_ != nullptr && (dirty_ || absl::Now() >= last_draw_ + kDrawIntervalMax)) {
        if (absl::Now() >= last_draw_ + kDrawInterval) Draw();
      }
    }
  }

  // The last picture, or what it would have shown, on the ordinary screen.
  void Close() {
    if (screen_ == nullptr) return;
    screen_.reset();
    if (!model_.state().job.has_value()) return;
    for (const std::string& line : Picture()) invocation_.Print(line + "\n");
  }

  const WatchState& state() const { return model_.state(); }

 private:
  int PollMilliseconds() const {
    if (screen_ == nullptr) return -1;
    const absl::Duration pause = dirty_ ? kDrawInterval : kDrawIntervalMax;
    const absl::Duration left = last_draw_ + pause - absl::Now();
    return static_cast<int>(std::max<int64_t>(0, absl::ToInt64Milliseconds(left)) + 1);
  }

  bool IsLeaving(int signal) {
    switch (signal) {
      case SIGWINCH:
        last_draw_ = absl::InfinitePast();
        dirty_ = true;
        return false;
      case SIGTSTP:
        if (screen_ != nullptr) screen_->Leave();
        kill(getpid(), SIGSTOP);
        // Here the process has been continued.
        if (screen_ != nullptr) screen_->Enter();
        dirty_ = true;
        return false;
      default:
        return true;
    }
  }

  void Apply(const WatchEvent& event) {
    model_.Apply(event);
    dirty_ = true;
    if (screen_ == nullptr) Tell(event);
    const auto* const end = std::get_if<StreamEnded>(&event);
    if (end == nullptr || end->stream == WatchStream::kNode) return;
    if (!end->status.ok() && failure_.ok()) failure_ = end->status;
    ended_.insert(end->stream);
  }

  void Tell(const WatchEvent& event) {
    if (invocation_.quiet) return;
    if (invocation_.format() != OutputFormat::kTable) {
      for (const nlohmann::ordered_json& record : WatchRecords(event)) {
        invocation_.PrintRecord(record);
      }
      return;
    }
    for (const std::string& line : lines_.Lines(event, model_)) invocation_.Print(line + "\n");
  }

  std::vector<std::string> Picture() const {
    const ViewSize size = {environment_.columns(), environment_.rows()};
    return DrawWatch(model_.state(), size, absl::Now(), environment_.charset);
  }
  void Draw() {
    screen_->Draw(Picture());
    last_draw_ = absl::Now();
    dirty_ = false;
  }

  const Environment& environment_;
  const Invocation& invocation_;
  SignalWatch* const signals_;
  std::unique_ptr<Screen> screen_;  // null: plain lines
  WatchModel model_;
  WatchLines lines_;
  std::set<WatchStream> ended_;
  absl::Status failure_;
  bool dirty_ = true;
  absl::Time last_draw_ = absl::InfinitePast();
};

}  // namespace

absl::StatusOr<v1::Job> WatchJob(const Invocation& invocation, Connection* connection,
                                 const std::string& job, SignalWatch* signals) {
  WatchSession session(invocation, signals);
  absl::Status status;
  {
    EventQueue queue;
    const WatchStreams streams(connection, job, invocation.view(), IsLive(invocation), &queue);
    status = session.Run(&queue);
  }
  session.Close();
  if (session.state().job.has_value()) {
    if (!invocation.quiet && invocation.format() == OutputFormat::kTable) {
      invocation.Print(ClosingLine(*session.state().job) + "\n");
    }
  } else if (status.ok()) {
    status = absl::InternalError("the server sent no job");
  }
  if (!status.ok()) return status;
  return *session.state().job;
}

}  // namespace megatrain::client
