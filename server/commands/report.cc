#include "server/commands/report.h"

#include <cstdio>
#include <string>

#include "server/base/exit_code.h"

namespace megatrain {

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
