// Declares the commands of megatraind. Each Add...Command adds a subcommand to `app`, with its
// options and a callback. CLI11 runs the callback while `app` parses. The callback carries out the
// command, reports its errors (Report) and sets *exit_code, which must outlive the parsing.
#ifndef MEGATRAIN_SERVER_COMMANDS_COMMAND_H_
#define MEGATRAIN_SERVER_COMMANDS_COMMAND_H_

#include <CLI/CLI.hpp>

#include "server/base/exit_code.h"  // IWYU pragma: export

namespace megatrain {

void AddRunCommand(CLI::App* app, int* exit_code);
void AddServeCommand(CLI::App* app, int* exit_code);
void AddPlanCommand(CLI::App* app, int* exit_code);
void AddInspectCommand(CLI::App* app, int* exit_code);
void AddInitCommand(CLI::App* app, int* exit_code);
void AddGenerateCommand(CLI::App* app, int* exit_code);
void AddEvaluateCommand(CLI::App* app, int* exit_code);
void AddCheckpointCommands(CLI::App* app, int* exit_code);  // export, gather, verify
void AddTokenCommands(CLI::App* app, int* exit_code);       // token add, ls, revoke
void AddSchemaCommand(CLI::App* app, int* exit_code);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_COMMANDS_COMMAND_H_
