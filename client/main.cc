// megatrain: the client.
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "client/program.h"

int main(int argc, char** argv) {
  // A reader that has gone ends a view, also where a service manager ignores the signal.
  std::signal(SIGPIPE, SIG_DFL);
  // What gRPC would log, the errors say in words; who wants its lines sets the variable.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  return megatrain::client::RunProgram(std::vector<std::string>(argv + 1, argv + argc),
                                       megatrain::client::ProcessEnvironment());
}
