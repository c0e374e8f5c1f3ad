// megatraind export CHECKPOINT --out DIR: a Hugging Face directory from a checkpoint.
// megatraind verify CHECKPOINT: every checksum.
#include <cstdio>
#include <memory>
#include <string>

#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/inspect/export_checkpoint.h"
#include "server/commands/command.h"

namespace megatrain {
namespace {

struct CheckpointArguments {
  std::string checkpoint;
  std::string directory;  // of export
};

absl::Status Export(const CheckpointArguments& arguments) {
  MT_RETURN_IF_ERROR(ExportCheckpoint(arguments.checkpoint, arguments.directory));
  std::printf("%s\n", arguments.directory.c_str());
  return absl::OkStatus();
}

absl::Status Verify(const CheckpointArguments& arguments) {
  const std::string& checkpoint = arguments.checkpoint;
  MT_RETURN_IF_ERROR(VerifyCheckpoint(checkpoint));
  MT_ASSIGN_OR_RETURN(const CheckpointState state, ReadCheckpointState(checkpoint));
  std::printf("%s: good, step %lld\n", checkpoint.c_str(), static_cast<long long>(state.step));
  return absl::OkStatus();
}

}  // namespace

void AddCheckpointCommands(CLI::App* app, int* exit_code) {
  const auto arguments = std::make_shared<CheckpointArguments>();
  const auto add = [&](const char* name, const char* description,
                       absl::Status (*act)(const CheckpointArguments&)) {
    CLI::App* const command = app->add_subcommand(name, description);
    command->add_option("checkpoint", arguments->checkpoint, "the directory step-NNNNNNNN")
        ->required()
        ->type_name("CHECKPOINT");
    command->callback([=] { *exit_code = Report(act(*arguments)); });
    return command;
  };
  add("export", "Make a Hugging Face directory from a checkpoint", Export)
      ->add_option("--out", arguments->directory, "the directory to make")
      ->required()
      ->type_name("DIR");
  add("verify", "Compare every file of a checkpoint with its checksum", Verify);
}

}  // namespace megatrain
