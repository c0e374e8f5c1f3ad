// megatraind verify CHECKPOINT: every checksum.
#include <cstdio>
#include <memory>
#include <string>

#include "engine/base/status.h"
#include "engine/checkpoint/checkpoint.h"
#include "server/commands/command.h"

namespace megatrain {
namespace {

absl::Status Verify(const std::string& checkpoint) {
  MT_RETURN_IF_ERROR(VerifyCheckpoint(checkpoint));
  MT_ASSIGN_OR_RETURN(const CheckpointState state, ReadCheckpointState(checkpoint));
  std::printf("%s: good, step %lld\n", checkpoint.c_str(), static_cast<long long>(state.step));
  return absl::OkStatus();
}

}  // namespace

void AddVerifyCommand(CLI::App* app, int* exit_code) {
  auto checkpoint = std::make_shared<std::string>();
  CLI::App* const command =
      app->add_subcommand("verify", "Compare every file of a checkpoint with its checksum");
  command->add_option("checkpoint", *checkpoint, "the directory step-NNNNNNNN")
      ->required()
      ->type_name("CHECKPOINT");
  command->callback([checkpoint, exit_code] { *exit_code = Report(Verify(*checkpoint)); });
}

}  // namespace megatrain
