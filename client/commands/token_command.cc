// megatrain token
#include <memory>
#include <string>

#include "client/commands/command.h"
#include "engine/base/status.h"

namespace megatrain::client {
namespace {

absl::StatusOr<ExitCode> ShowToken(const Invocation& invocation) {
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, invocation.Connect());
  MT_ASSIGN_OR_RETURN(const std::string authorization, connection->Authorization());
  if (invocation.format() == OutputFormat::kTable) {
    invocation.Print(authorization + "\n");
  } else {
    invocation.PrintObject({{"authorization", authorization}});
  }
  return kExitDone;
}

}  // namespace

void AddTokenCommand(CLI::App* app, CommandContext context) {
  AddCommand(app, "token", "The metadata `authorization` for other gRPC clients", context,
             [context] { return ShowToken(*context.invocation); });
}

}  // namespace megatrain::client
