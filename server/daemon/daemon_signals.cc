#include "server/daemon/daemon_signals.h"

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

std::atomic<bool> stop_requested{false};
std::atomic<bool> reload_requested{false};
// Readable once something was requested: what a handler may do to wake a thread.
std::atomic<int> event{-1};

// Only async-signal-safe calls.
void Wake() {
  const int saved_errno = errno;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event, &one, sizeof(one));
  errno = saved_errno;
}

void OnStop(int) {
  if (stop_requested.exchange(true)) _exit(kExitInterrupted);
  Wake();
}

void OnReload(int) {
  reload_requested = true;
  Wake();
}

void Handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

}  // namespace

void InstallDaemonSignals() {
  event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  Handle(SIGINT, OnStop);
  Handle(SIGTERM, OnStop);
  struct sigaction hangup = {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) Handle(SIGHUP, OnReload);
  Handle(SIGPIPE, SIG_IGN);
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
