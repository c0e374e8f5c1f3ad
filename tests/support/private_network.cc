// Runs a command in a network of its own, which has the loopback interface alone: for programs that
// listen on all interfaces, as those of MPI do.
//
//   private_network COMMAND [ARGUMENT...]
#include <unistd.h>

#include <cstdio>
#include <string>

#include "tests/support/private_system.h"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  if (const std::string error = megatrain::EnterPrivateNetwork(); !error.empty()) {
    std::fprintf(stderr, "%s\n", error.c_str());
    return 1;
  }
  execv(argv[1], argv + 1);
  std::perror(argv[1]);
  return 127;
}
