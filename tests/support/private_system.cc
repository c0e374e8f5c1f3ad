#include "tests/support/private_system.h"

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace megatrain {

namespace {

std::string Error(const char* what) { return std::string(what) + ": " + std::strerror(errno); }

int ExitCodeOf(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Waits for `child`, and for all processes that have lost their parents.
[[noreturn]] void ReapUntilEndOf(pid_t child) {
  for (int status = 0;;) {
    const pid_t ended = waitpid(-1, &status, 0);
    if (ended == child) _exit(ExitCodeOf(status));
    if (ended < 0 && errno != EINTR) _exit(127);
  }
}

}  // namespace

std::string EnterPrivateNetwork() {
  if (unshare(CLONE_NEWNET) != 0) return Error("a network of its own needs root: unshare");
  const int socket_of_network = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq loopback = {};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP | IFF_RUNNING;
  const bool up = ioctl(socket_of_network, SIOCSIFFLAGS, &loopback) == 0;
  const std::string error = up ? "" : Error("the loopback interface");
  close(socket_of_network);
  return error;
}

std::string EnterPrivateSystem() {
  if (unshare(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC) != 0) {
    return Error("a system of its own needs root: unshare");
  }
  if (std::string error = EnterPrivateNetwork(); !error.empty()) return error;
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("shm", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, nullptr) != 0) {
    return Error("mount");
  }
  // The first process in a system is its init: when it ends the kernel ends all others.
  const pid_t init = fork();
  if (init < 0) return Error("fork");
  if (init > 0) ReapUntilEndOf(init);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const bool mounted = mount("proc", "/proc", "proc", 0, nullptr) == 0;
  const std::string error = mounted ? "" : Error("mount: /proc");
  const pid_t child = fork();
  if (child > 0) ReapUntilEndOf(child);
  return child < 0 ? Error("fork") : error;
}

}  // namespace megatrain
