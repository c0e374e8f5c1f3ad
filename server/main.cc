// megatraind: the daemon, the engine in the foreground, and the tools that need no server.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "server/base/exit_code.h"
#include "server/base/version.h"
#include "server/commands/command.h"

namespace {

// The default of 1,024 is soon used up: a stream takes a file of its job's log beside its
// connection's share, and a checkpoint of a model with experts has a file for each of its tiles.
// What cannot be had is gone without.
void RaiseFileLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  RaiseFileLimit();
  CLI::App app("Trains language models far larger than the device's memory.", "megatraind");
  app.set_version_flag("--version", std::string("megatraind ") + megatrain::kVersion);
  app.require_subcommand(1);
  int exit_code = megatrain::kExitDone;
  megatrain::AddServeCommand(&app, &exit_code);
  megatrain::AddRunCommand(&app, &exit_code);
  megatrain::AddPlanCommand(&app, &exit_code);
  megatrain::AddInspectCommand(&app, &exit_code);
  megatrain::AddInitCommand(&app, &exit_code);
  megatrain::AddGenerateCommand(&app, &exit_code);
  megatrain::AddEvaluateCommand(&app, &exit_code);
  megatrain::AddCheckpointCommands(&app, &exit_code);
  megatrain::AddSchemaCommand(&app, &exit_code);
  megatrain::AddTokenCommands(&app, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 prints the help, the version, or what is wrong with the command line.
    return app.exit(error) == 0 ? megatrain::kExitDone : megatrain::kExitUsage;
  } catch (const std::exception& error) {  // out of memory, a system call inside the library
    std::fprintf(stderr, "megatraind: %s\n", error.what());
    return megatrain::kExitFailed;
  }
  if (std::fflush(stdout) != 0 && exit_code == megatrain::kExitDone) {
    std::perror("megatraind: standard output");
    return megatrain::kExitFailed;
  }
  return exit_code;
}
