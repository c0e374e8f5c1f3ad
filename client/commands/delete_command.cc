// megatrain delete
#include <google/protobuf/empty.pb.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/commands/checkpoint_list.h"
#include "client/commands/command.h"
#include "client/connection/connection.h"
#include "client/context/job_name.h"
#include "client/output/proto_json.h"
#include "client/output/text.h"
#include "engine/base/status.h"

namespace megatrain::client {
namespace {

struct Deletion {
  std::string job;
  bool yes = false;  // do not ask
};

// What is lost with the job, so that nobody agrees to less than is done.
absl::StatusOr<std::string> Question(Connection* connection, const std::string& name) {
  v1::GetJobRequest get;
  get.set_name(name);
  MT_ASSIGN_OR_RETURN(const v1::Job job,
                      connection->Call(connection->jobs(), &v1::JobService::Stub::GetJob, get));
  MT_ASSIGN_OR_RETURN(const std::vector<v1::Checkpoint> checkpoints,
                      ListCheckpoints(connection, name));
  // The server knows no other directory of a job whose file it does not understand any more.
  const bool own = !job.has_summary() || job.summary().own_checkpoint_directory();
  int64_t bytes = 0;
  for (const v1::Checkpoint& each : checkpoints) bytes += each.bytes();
  std::string what = "its events, metrics and log";
  if (!checkpoints.empty()) {
    absl::StrAppend(&what, own ? ", and " : "; ", checkpoints.size(),
                    checkpoints.size() == 1 ? " checkpoint (" : " checkpoints (", SizeText(bytes),
                    ")",
                    own ? ""
                        : absl::StrCat(" in ", Printable(job.summary().checkpoint_directory()),
                                       checkpoints.size() == 1 ? " stays" : " stay"));
  }
  return absl::StrCat("Delete ", name, " (", Printable(job.display_name()), ", ",
                      v1::Job::State_Name(job.state()), "): ", what, "? [y/N] ");
}

absl::StatusOr<ExitCode> Delete(const Invocation& invocation, const Deletion& deletion) {
  v1::DeleteJobRequest request;
  MT_ASSIGN_OR_RETURN(*request.mutable_name(), ParseJobName(deletion.job));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, invocation.Connect());
  if (!deletion.yes) {
    if (!invocation.environment().ask) {
      return absl::InvalidArgumentError(
          "there is no terminal to ask whether the job is to be deleted; say --yes if it is");
    }
    MT_ASSIGN_OR_RETURN(const std::string question, Question(connection.get(), request.name()));
    const std::string answer =
        absl::AsciiStrToLower(absl::StripAsciiWhitespace(invocation.environment().ask(question)));
    if (answer != "y" && answer != "yes") {
      invocation.Note(absl::StrCat(request.name(), " is left as it is"));
      return kExitInterrupted;
    }
  }
  MT_RETURN_IF_ERROR(
      connection->Call(connection->jobs(), &v1::JobService::Stub::DeleteJob, request).status());
  if (invocation.quiet) {
    invocation.Print(request.name() + "\n");
  } else if (invocation.format() != OutputFormat::kTable) {
    invocation.PrintObject({{"name", request.name()}, {"deleted", true}});
  } else {
    invocation.Print(absl::StrCat(request.name(), " is deleted\n"));
  }
  return kExitDone;
}

}  // namespace

void AddDeleteCommand(CLI::App* app, CommandContext context) {
  const auto deletion = std::make_shared<Deletion>();
  CLI::App* const command =
      AddCommand(app, "delete", "Delete a job that has ended, with what the daemon keeps for it",
                 context, [context, deletion] { return Delete(*context.invocation, *deletion); });
  AddJobArgument(command, &deletion->job);
  command->add_flag("-y,--yes", deletion->yes, "do not ask");
}

}  // namespace megatrain::client
