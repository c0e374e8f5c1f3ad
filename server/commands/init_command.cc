// megatraind init: a Hugging Face directory with random weights.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/hf/hf_init.h"
#include "server/commands/command.h"

namespace megatrain {
namespace {

struct InitArguments {
  std::string preset;
  std::string directory;
  uint64_t seed = 42;
  bool config_only = false;
};

absl::Status Init(const InitArguments& arguments) {
  const absl::Status status = InitializeHfDirectory(arguments.preset, arguments.seed,
                                                    arguments.config_only, arguments.directory);
  if (status.ok()) std::printf("%s\n", arguments.directory.c_str());
  return status;
}

}  // namespace

void AddInitCommand(CLI::App* app, int* exit_code) {
  auto arguments = std::make_shared<InitArguments>();
  CLI::App* const command =
      app->add_subcommand("init", "Make a Hugging Face directory with random weights");
  command
      ->add_option("--preset", arguments->preset,
                   absl::StrCat("one of ", absl::StrJoin(PresetNames(), ", ")))
      ->required()
      ->type_name("NAME");
  command->add_option("--out", arguments->directory, "the directory to make")
      ->required()
      ->type_name("DIR");
  command->add_option("--seed", arguments->seed)->capture_default_str();
  command->add_flag("--config-only", arguments->config_only, "write config.json and no weights");
  command->callback([arguments, exit_code] { *exit_code = Report(Init(*arguments)); });
}

}  // namespace megatrain
