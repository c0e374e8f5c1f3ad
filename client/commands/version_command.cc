// megatrain version
#include <grpcpp/grpcpp.h>

#include "absl/strings/str_cat.h"
#include "client/commands/command.h"
#include "server/base/version.h"

namespace megatrain::client {

void AddVersionCommand(CLI::App* app, CommandContext context) {
  AddCommand(
      app, "version", "The client's version", context, [context]() -> absl::StatusOr<ExitCode> {
        const Invocation& invocation = *context.invocation;
        if (invocation.format() == OutputFormat::kTable || invocation.quiet) {
          invocation.Print(absl::StrCat(invocation.quiet ? "" : "megatrain ", kVersion, "\n"));
        } else {
          invocation.PrintObject({{"version", kVersion}, {"grpc", grpc::Version()}});
        }
        return kExitDone;
      });
}

}  // namespace megatrain::client
