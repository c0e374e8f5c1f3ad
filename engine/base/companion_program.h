// Finds the programs that are installed beside this one.
#ifndef MEGATRAIN_ENGINE_BASE_COMPANION_PROGRAM_H_
#define MEGATRAIN_ENGINE_BASE_COMPANION_PROGRAM_H_

#include <string>

#include "absl/status/statusor.h"

namespace megatrain {

// Returns the path of the program `name` in the directory of the running program, or the path that
// the environment variable `variable` gives. Returns NotFound, with the path, if no program is
// there.
absl::StatusOr<std::string> CompanionProgram(const std::string& name, const char* variable);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_COMPANION_PROGRAM_H_
