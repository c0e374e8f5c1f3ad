#include "server/base/exit_code.h"

#include <cstdio>
#include <string>

namespace megatrain {

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitDone;
    // What the caller asked for cannot be: a wrong value, a file that is not there, a checkpoint of
    // another job. Asking again the same way gives the same answer.
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
      return kExitUsage;
    case absl::StatusCode::kResourceExhausted:
      return kExitDoesNotFit;
    case absl::StatusCode::kCancelled:
      return kExitInterrupted;
    default:
      return kExitFailed;
  }
}

int Report(const absl::Status& status) {
  if (!status.ok()) {
    const std::string message = status.message().empty()
                                    ? std::string(absl::StatusCodeToString(status.code()))
                                    : std::string(status.message());
    std::fflush(stdout);
    std::fprintf(stderr, "megatraind: %s\n", message.c_str());
  }
  return ExitCodeOf(status);
}

}  // namespace megatrain
