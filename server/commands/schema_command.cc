// megatraind schema job|config: the keys of a job file or of the daemon's configuration.
#include <cstdio>
#include <memory>
#include <string>

#include "engine/config/config_schema.h"
#include "engine/job/job_keys.h"
#include "server/base/exit_code.h"
#include "server/commands/command.h"
#include "server/config/daemon_keys.h"

namespace megatrain {
namespace {

struct SchemaArguments {
  std::string file;
  std::string output = "json";
};

void PrintSchema(const SchemaArguments& arguments) {
  JobSpec spec;
  DaemonConfig config;
  const ConfigTable table = arguments.file == "job" ? JobKeys(&spec) : DaemonKeys(&config);
  std::fputs(arguments.output == "json" ? (JsonSchema(table).dump(2) + "\n").c_str()
                                        : ConfigListing(table).c_str(),
             stdout);
}

}  // namespace

void AddSchemaCommand(CLI::App* app, int* exit_code) {
  auto arguments = std::make_shared<SchemaArguments>();
  CLI::App* const command = app->add_subcommand(
      "schema", "Print the JSON Schema of job files or of the configuration, for editors");
  command->add_option("file", arguments->file, "which file: job, or config (the daemon's)")
      ->required()
      ->type_name("job|config")
      ->check(CLI::IsMember({"job", "config"}));
  command
      ->add_option("-o,--output", arguments->output,
                   "yaml: every key with its default and its help instead")
      ->type_name("json|yaml")
      ->check(CLI::IsMember({"json", "yaml"}));
  command->callback([arguments, exit_code] {
    PrintSchema(*arguments);
    *exit_code = kExitDone;
  });
}

}  // namespace megatrain
