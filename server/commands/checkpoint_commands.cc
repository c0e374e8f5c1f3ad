// megatraind export CHECKPOINT --out DIR: a Hugging Face directory from a checkpoint.
// megatraind gather PART... --out DIR: one checkpoint from its parts.
// megatraind verify CHECKPOINT: every checksum.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/inspect/export_checkpoint.h"
#include "engine/inspect/gather_checkpoint.h"
#include "server/commands/command.h"

namespace megatrain {
namespace {

struct CheckpointArguments {
  std::string checkpoint;
  std::vector<std::string> parts;  // of gather, instead
  std::string directory;           // --out
};

absl::Status Export(const CheckpointArguments& arguments) {
  MT_RETURN_IF_ERROR(ExportCheckpoint(arguments.checkpoint, arguments.directory));
  std::printf("%s\n", arguments.directory.c_str());
  return absl::OkStatus();
}

absl::Status Gather(const CheckpointArguments& arguments) {
  MT_ASSIGN_OR_RETURN(const std::string checkpoint,
                      GatherCheckpoint(arguments.parts, arguments.directory));
  std::printf("%s\n", checkpoint.c_str());
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
  const auto add = [&](const char* name, const char* description, auto& checkpoints,
                       const char* type, absl::Status (*act)(const CheckpointArguments&)) {
    CLI::App* const command = app->add_subcommand(name, description);
    command->add_option("checkpoint", checkpoints, "the directory step-NNNNNNNN")
        ->required()
        ->type_name(type);
    command->callback([=] { *exit_code = Report(act(*arguments)); });
    return command;
  };
  const auto add_out = [&](CLI::App* command, const char* description) {
    command->add_option("--out", arguments->directory, description)->required()->type_name("DIR");
  };
  add_out(add("export", "Make a Hugging Face directory from a checkpoint", arguments->checkpoint,
              "CHECKPOINT", Export),
          "the directory to make");
  add_out(add("gather", "Join the parts that machines saved with checkpoint.shared: false",
              arguments->parts, "PART", Gather),
          "the directory for the checkpoint");
  add("verify", "Compare every file of a checkpoint with its checksum", arguments->checkpoint,
      "CHECKPOINT", Verify);
}

}  // namespace megatrain
