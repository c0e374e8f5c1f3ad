// The whole program but main, so that tests can run it in their own process.
#ifndef MEGATRAIN_CLIENT_PROGRAM_H_
#define MEGATRAIN_CLIENT_PROGRAM_H_

#include <string>
#include <vector>

#include "client/context/invocation.h"

namespace megatrain::client {

// Runs the command of `arguments`, which lack the program's name. Returns the exit code. Commands
// that wait take over SIGINT, SIGTERM and SIGHUP meanwhile.
int RunProgram(std::vector<std::string> arguments, const Environment& environment);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_PROGRAM_H_
