#include "client/connection/signal_watch.h"

#include <sys/signalfd.h>
#include <unistd.h>

namespace megatrain::client {

SignalWatch::SignalWatch(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) {
    // A signal that is ignored, as nohup has it, would come once it is blocked.
    struct sigaction now = {};
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN) continue;
    sigaddset(&set, signal);
  }
  pthread_sigmask(SIG_BLOCK, &set, &before_);
  fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  // Without a descriptor the signals must not be lost.
  if (fd_ < 0) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

SignalWatch::~SignalWatch() {
  // What came too late would end the process once the signals are let through again.
  while (Take().has_value()) {
  }
  if (fd_ >= 0) close(fd_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> SignalWatch::Take() {
  signalfd_siginfo info;
  if (fd_ < 0 || read(fd_, &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

}  // namespace megatrain::client
