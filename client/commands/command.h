// The commands of megatrain. Each Add...Command declares a command's options on `app` and a
// callback. CLI11 runs the callback while `app` parses; the callback carries the command out and
// sets the context's exit code.
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

// CommandContext is passed to every command. Both pointers must be set. Their objects must outlive
// the parsing.
struct CommandContext {
  const Invocation* invocation = nullptr;
  int* exit_code = nullptr;  // set by the command
};

// Each declares the command that its name says, except where a comment names others.
void AddSubmitCommand(CLI::App* app, CommandContext context);
void AddPlanCommand(CLI::App* app, CommandContext context);
void AddListCommand(CLI::App* app, CommandContext context);  // ls
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
void AddContextCommands(CLI::App* app, CommandContext context);  // context add, ls, use
void AddCompletionCommand(CLI::App* app, CommandContext context);
void AddTokenCommand(CLI::App* app, CommandContext context);
void AddVersionCommand(CLI::App* app, CommandContext context);

// Adds a subcommand whose callback calls `run` and sets the exit code that it returns. An error of
// `run` is reported (Invocation::Report) and turned into the exit code. Options of the whole
// program may also follow the subcommand's own. `app` owns the result.
CLI::App* AddCommand(CLI::App* app, const std::string& name, const std::string& description,
                     CommandContext context, std::function<absl::StatusOr<ExitCode>()> run);

// The functions below declare arguments of a command. Parsing writes their values to the targets,
// which must outlive the parsing.

// Declares a required positional argument, the job's name as the user types it
// (client/context/job_name.h).
void AddJobArgument(CLI::App* command, std::string* job);
// Declares a required positional argument, the path of a job file ("-" is standard input), and the
// repeatable option --set, which overrides values of the file.
void AddJobFileArguments(CLI::App* command, std::string* path, std::vector<std::string>* overrides);
// Declares the option --allow-change, whose value is a comma-separated list of sections of the job
// file. The server checks the names.
void AddAllowChangeOption(CLI::App* command, std::vector<std::string>* sections);

// Returns kExitDone if the job succeeded, else kExitFailed. REQUIRES: the job has ended.
ExitCode ExitCodeOfJob(const v1::Job& job);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_COMMANDS_COMMAND_H_
