#include "client/program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <sstream>

#include "client/commands/command.h"
#include "client/connection/exit_code.h"
#include "server/base/version.h"

namespace megatrain::client {

int RunProgram(std::vector<std::string> arguments, const Environment& environment) {
  CLI::App app("Submits training jobs to a megatraind and shows what they do.", "megatrain");
  Invocation invocation(environment);
  int exit_code = kExitDone;
  app.set_version_flag("--version", std::string("megatrain ") + kVersion);
  app.require_subcommand(1);
  app.add_option("--server", invocation.server,
                 "where the daemon is; else MEGATRAIN_SERVER, the current context, or "
                 "unix:/run/megatrain/megatrain.sock")
      ->type_name("unix:PATH|HOST:PORT");
  app.add_option("-o,--output", invocation.output, "how results are written")
      ->type_name("table|json|yaml")
      ->check(CLI::IsMember({"table", "json", "yaml"}));
  app.add_flag("-q,--quiet", invocation.quiet, "names only");
  const CommandContext context{&invocation, &exit_code};
  AddSubmitCommand(&app, context);
  AddListCommand(&app, context);
  AddShowCommand(&app, context);
  AddWatchCommand(&app, context);
  AddLogsCommand(&app, context);
  AddMetricsCommand(&app, context);
  AddWaitCommand(&app, context);
  AddControlCommands(&app, context);
  AddDeleteCommand(&app, context);
  AddCheckpointsCommand(&app, context);
  AddExportCommand(&app, context);
  AddPlanCommand(&app, context);
  AddInfoCommand(&app, context);
  AddContextCommands(&app, context);
  AddTokenCommand(&app, context);
  AddCompletionCommand(&app, context);
  AddVersionCommand(&app, context);
  try {
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    // The help, the version, or what is wrong with the command line.
    std::ostringstream out, err;
    const int code = app.exit(error, out, err);
    invocation.Print(out.str());
    std::fputs(err.str().c_str(), environment.err);
    exit_code = code == 0 ? kExitDone : kExitUsage;
  } catch (const std::exception& error) {  // out of memory, a thread that cannot be started
    invocation.Note(error.what());
    return kExitFailed;
  }
  if ((std::fflush(environment.out) != 0 || std::ferror(environment.out) != 0) &&
      exit_code == kExitDone) {
    invocation.Note("standard output cannot be written");
    return kExitFailed;
  }
  return exit_code;
}

}  // namespace megatrain::client
