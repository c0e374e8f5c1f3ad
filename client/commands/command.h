// The commands of megatrain. Add...Command declares a command's options on `app`, and a callback
// that runs it while `app` parses and sets the context's exit code.
#ifndef MEGATRAIN_CLIENT_COMMANDS_COMMAND_H_
#define MEGATRAIN_CLIENT_COMMANDS_COMMAND_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/connection/exit_code.h"
#include "client/context/invocation.h"
#include "megatrain/v1/job.pb.h"

namespace megatrain::client {

// Given to every command. The targets must outlive the parsing.
struct CommandContext {
  const Invocation* invocation = nullptr;
  int* exit_code = nullptr;
};

void AddSubmitCommand(CLI::App* app, CommandContext context);
void AddPlanCommand(CLI::App* app, CommandContext context);
void AddListCommand(CLI::App* app, CommandContext context);
void AddShowCommand(CLI::App* app, CommandContext context);
void AddWatchCommand(CLI::App* app, CommandContext context);
void AddLogsCommand(CLI::App* app, CommandContext context);
void AddMetricsCommand(CLI::App* app, CommandContext context);
void AddWaitCommand(CLI::App* app, CommandContext context);
void AddControlCommands(CLI::App* app,
                        CommandContext context);  // pause, resume, cancel, checkpoint
void AddDeleteCommand(CLI::App* app, CommandContext context);
void AddCheckpointsCommand(CLI::App* app, CommandContext context);
void AddExportCommand(CLI::App* app, CommandContext context);
void AddInfoCommand(CLI::App* app, CommandContext context);
void AddContextCommands(CLI::App* app, CommandContext context);
void AddCompletionCommand(CLI::App* app, CommandContext context);
void AddTokenCommand(CLI::App* app, CommandContext context);
void AddVersionCommand(CLI::App* app, CommandContext context);

// Adds a subcommand that `run` carries out; an error of `run` is reported, and decides the exit
// code. Options of the whole program may come after its own. `app` owns the result.
CLI::App* AddCommand(CLI::App* app, const std::string& name, const std::string& description,
                     CommandContext context, std::function<absl::StatusOr<ExitCode>()> run);
// Both declare positional arguments, which are written to the targets when `app` parses.
void AddJobArgument(CLI::App* command, std::string* job);
void AddJobFileArguments(CLI::App* command, std::string* path, std::vector<std::string>* overrides);

// Returns the exit code for a job that has ended: kExitDone if it succeeded.
ExitCode ExitCodeOf(const v1::Job& job);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_COMMANDS_COMMAND_H_
