// The whole program except main, so that tests can run it in their own process.
#ifndef MEGATRAIN_CLIENT_PROGRAM_H_
#define MEGATRAIN_CLIENT_PROGRAM_H_

#include <string>
#include <vector>

#include "client/context/invocation.h"

namespace megatrain::client {

// Runs the command named by `arguments`, which lack the program's name, and returns the exit code.
// Commands that wait block SIGINT, SIGTERM and SIGHUP in the calling thread meanwhile; those with a
// live view also SIGWINCH and SIGTSTP. The exit codes are those of exit_code.h. An error of the
// command line is written to environment.err.
int RunProgram(std::vector<std::string> arguments, const Environment& environment);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_PROGRAM_H_
