#ifndef MEGATRAIN_SERVER_COMMANDS_REPORT_H_
#define MEGATRAIN_SERVER_COMMANDS_REPORT_H_

#include "absl/status/status.h"

namespace megatrain {

// Prints an error on standard error, and nothing for OK. Returns the exit code of `status`.
int Report(const absl::Status& status);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_COMMANDS_REPORT_H_
