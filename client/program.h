// The whole program, short of main: tests run it in their own process.
#ifndef MEGATRAIN_CLIENT_PROGRAM_H_
#define MEGATRAIN_CLIENT_PROGRAM_H_

#include <string>
#include <vector>

#include "client/context/invocation.h"

namespace megatrain::client {

// `arguments` without the program's name. Returns the exit code.
int RunProgram(std::vector<std::string> arguments, const Environment& environment);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_PROGRAM_H_
