// megatraind export CHECKPOINT --out DIR: a Hugging Face directory from a checkpoint.
#include <cstdio>
#include <memory>
#include <string>

#include "engine/inspect/export_checkpoint.h"
#include "server/commands/command.h"

namespace megatrain {
namespace {

struct ExportArguments {
  std::string checkpoint;
  std::string directory;
};

absl::Status Export(const ExportArguments& arguments) {
  const absl::Status status = ExportCheckpoint(arguments.checkpoint, arguments.directory);
  if (status.ok()) std::printf("%s\n", arguments.directory.c_str());
  return status;
}

}  // namespace

void AddExportCommand(CLI::App* app, int* exit_code) {
  auto arguments = std::make_shared<ExportArguments>();
  CLI::App* const command =
      app->add_subcommand("export", "Make a Hugging Face directory from a checkpoint");
  command->add_option("checkpoint", arguments->checkpoint, "the directory step-NNNNNNNN")
      ->required()
      ->type_name("CHECKPOINT");
  command->add_option("--out", arguments->directory, "the directory to make")
      ->required()
      ->type_name("DIR");
  command->callback([arguments, exit_code] { *exit_code = Report(Export(*arguments)); });
}

}  // namespace megatrain
