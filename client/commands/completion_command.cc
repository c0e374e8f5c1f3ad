// megatrain completion bash|zsh|fish
#include <memory>
#include <string>

#include "client/commands/command.h"
#include "client/commands/completion.h"

namespace megatrain::client {

void AddCompletionCommand(CLI::App* app, CommandContext context) {
  const auto shell = std::make_shared<std::string>();
  AddCommand(app, "completion", "A completion script for a shell, to be sourced", context,
             [app, context, shell]() -> absl::StatusOr<ExitCode> {
               const CompletionWords words = DescribeForCompletion(*app);
               context.invocation->Print(*shell == "bash"  ? BashCompletion(words)
                                         : *shell == "zsh" ? ZshCompletion(words)
                                                           : FishCompletion(words));
               return kExitDone;
             })
      ->add_option("shell", *shell)
      ->required()
      ->type_name("bash|zsh|fish")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
}

}  // namespace megatrain::client
