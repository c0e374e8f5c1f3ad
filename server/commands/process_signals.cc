#include "server/commands/process_signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "server/base/exit_code.h"

namespace megatrain {
namespace {

std::atomic<TrainingControl*> training_control{nullptr};
std::atomic<bool> training_says{true};

std::atomic<bool> stop_signalled{false};
std::atomic<bool> stop_requested{false};
std::atomic<bool> reload_requested{false};
// An eventfd, readable once the daemon was asked for something: all that a handler may do to wake a
// thread.
std::atomic<int> event{-1};

// Handlers: they call async-signal-safe functions only, and leave errno as it was.

void WriteFromHandler(int fd, const void* data, size_t bytes) {
  const int saved_errno = errno;
  [[maybe_unused]] const ssize_t written = write(fd, data, bytes);
  errno = saved_errno;
}

void StopTraining(int) {
  if (training_control.load()->Stop()) _exit(kExitInterrupted);
  if (!training_says) return;
  constexpr char kMessage[] = "\nstopping after this step; once more ends at once\n";
  WriteFromHandler(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
}

void CheckpointTraining(int) { training_control.load()->Checkpoint(); }

void WakeDaemon() {
  const uint64_t one = 1;
  WriteFromHandler(event, &one, sizeof(one));
}

void StopDaemon(int) {
  if (stop_signalled.exchange(true)) _exit(kExitInterrupted);
  stop_requested = true;
  WakeDaemon();
}

void ReloadDaemon(int) {
  reload_requested = true;
  WakeDaemon();
}

void Handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

void HandleAll(void (*stop)(int), void (*hangup)(int)) {
  Handle(SIGINT, stop);
  Handle(SIGTERM, stop);
  struct sigaction before = {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) Handle(SIGHUP, hangup);
  Handle(SIGPIPE, SIG_IGN);
}

}  // namespace

void InstallTrainingSignals(TrainingControl* control, bool says) {
  training_control = control;
  training_says = says;
  HandleAll(StopTraining, StopTraining);
  Handle(SIGUSR1, CheckpointTraining);
}

void InstallDaemonSignals() {
  event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  HandleAll(StopDaemon, ReloadDaemon);
}

void RequestStop() {
  stop_requested = true;
  WakeDaemon();
}

bool StopRequested() { return stop_requested; }

DaemonSignal WaitForSignal() {
  for (;;) {
    // Before the requests are looked at: one that comes later is readable again.
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t cleared = read(event, &count, sizeof(count));
    if (stop_requested) return DaemonSignal::kStop;
    if (reload_requested.exchange(false)) return DaemonSignal::kReload;
    pollfd readable = {event, POLLIN, 0};
    poll(&readable, 1, -1);  // again when a signal interrupts it
  }
}

}  // namespace megatrain
