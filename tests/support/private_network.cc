// Runs a command in a network of its own, which has the loopback interface alone: for programs that
// listen on all interfaces, as those of MPI do.
//
//   private_network COMMAND [ARGUMENT...]
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  if (unshare(CLONE_NEWNET) != 0) {
    std::perror("a network of its own needs root: unshare");
    return 1;
  }
  const int socket_of_network = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq loopback = {};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP | IFF_RUNNING;
  if (ioctl(socket_of_network, SIOCSIFFLAGS, &loopback) != 0) {
    std::perror("the loopback interface");
    return 1;
  }
  execv(argv[1], argv + 1);
  std::perror(argv[1]);
  return 127;
}
