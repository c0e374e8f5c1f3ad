#include "server/stop_signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "server/exit_code.h"

namespace megatrain {
namespace {

std::atomic<bool> requested{false};
// Readable once a stop was requested: what a handler may do to wake a thread.
std::atomic<int> event{-1};

// Only async-signal-safe calls.
void OnStop(int) {
  const int saved_errno = errno;
  if (requested.exchange(true)) _exit(kExitInterrupted);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event, &one, sizeof(one));
  errno = saved_errno;
}

void Handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

}  // namespace

void InstallStopSignals() {
  event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  Handle(SIGINT, OnStop);
  Handle(SIGTERM, OnStop);
  struct sigaction hangup = {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) Handle(SIGHUP, OnStop);
  Handle(SIGPIPE, SIG_IGN);
}

bool StopRequested() { return requested; }

void WaitForStop() {
  while (!requested) {
    pollfd readable = {event, POLLIN, 0};
    poll(&readable, 1, -1);  // again when a signal interrupts it
  }
}

}  // namespace megatrain
