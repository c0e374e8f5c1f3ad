// Runs the program megatrain, all of it but main, so that tests can run it in their own process.
#ifndef MEGATRAIN_CLIENT_PROGRAM_H_
#define MEGATRAIN_CLIENT_PROGRAM_H_

#include <string>
#include <vector>

#include "client/context/invocation.h"

namespace megatrain::client {

// Runs the command named by `arguments`, which lack the program's name, and returns an exit code of
// client/connection/exit_code.h. `watch`, `wait`, `logs`, `metrics` and `submit --watch` block
// SIGINT, SIGTERM and SIGHUP in the calling thread while they run; `watch` and `submit --watch`
// also block SIGWINCH and SIGTSTP. Errors are written to environment.err.
int RunProgram(std::vector<std::string> arguments, const Environment& environment);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_PROGRAM_H_
