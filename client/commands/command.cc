#include "client/commands/command.h"

#include <utility>

#include "client/connection/rpc_error.h"

namespace megatrain::client {

CLI::App* AddCommand(CLI::App* app, const std::string& name, const std::string& description,
                     CommandContext context, std::function<absl::StatusOr<ExitCode>()> run) {
  CLI::App* const command = app->add_subcommand(name, description);
  command->fallthrough();
  command->callback([context, run = std::move(run)] {
    const absl::StatusOr<ExitCode> code = run();
    context.invocation->Report(code.status());
    *context.exit_code = code.ok() ? *code : ExitCodeOf(code.status());
  });
  return command;
}

void AddJobArgument(CLI::App* command, std::string* job) {
  command->add_option("job", *job, "the job's name, jobs/ID or ID")->required()->type_name("JOB");
}

void AddJobFileArguments(CLI::App* command, std::string* path,
                         std::vector<std::string>* overrides) {
  command->add_option("file", *path, "the job file; - is standard input")
      ->required()
      ->type_name("JOB.yaml");
  command->add_option("--set", *overrides, "replace a value of the job file; repeatable")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

void AddAllowChangeOption(CLI::App* command, std::vector<std::string>* sections) {
  command
      ->add_option("--allow-change", *sections,
                   "sections of the job file that may differ from the checkpoint's")
      ->type_name("optimizer,schedule")
      ->delimiter(',')
      ->allow_extra_args(false);
}

ExitCode ExitCodeOfJob(const v1::Job& job) {
  return job.state() == v1::Job::SUCCEEDED ? kExitDone : kExitFailed;
}

}  // namespace megatrain::client
