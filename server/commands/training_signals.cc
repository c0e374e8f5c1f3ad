#include "server/commands/training_signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "server/base/exit_code.h"

namespace megatrain {
namespace {

std::atomic<TrainingControl*> signal_control{nullptr};

// Only async-signal-safe calls below.

void OnStop(int) {
  const int saved_errno = errno;
  TrainingControl* const control = signal_control.load();
  if (control->Stop()) _exit(kExitInterrupted);
  constexpr char kMessage[] = "\nstopping after this step; once more ends at once\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  errno = saved_errno;
}

void OnCheckpoint(int) { signal_control.load()->Checkpoint(); }

void Handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

}  // namespace

void InstallTrainingSignals(TrainingControl* control) {
  signal_control = control;
  Handle(SIGINT, OnStop);
  Handle(SIGTERM, OnStop);
  struct sigaction hangup = {};
  sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) Handle(SIGHUP, OnStop);
  Handle(SIGUSR1, OnCheckpoint);
  Handle(SIGPIPE, SIG_IGN);
}

}  // namespace megatrain
