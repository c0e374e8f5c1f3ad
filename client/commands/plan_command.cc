// megatrain plan JOB.yaml
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/commands/command.h"
#include "client/connection/connection.h"
#include "client/context/job_file.h"
#include "client/output/proto_json.h"
#include "client/output/text.h"
#include "engine/base/status.h"

namespace megatrain::client {
namespace {

struct PlanArguments {
  std::string file;
  std::vector<std::string> overrides;
};

absl::StatusOr<ExitCode> Plan(const Invocation& invocation, const PlanArguments& arguments) {
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, invocation.Connect());
  v1::PlanJobRequest request;
  MT_ASSIGN_OR_RETURN(*request.mutable_file(),
                      ReadJobFile(arguments.file, arguments.overrides, connection->address()));
  MT_ASSIGN_OR_RETURN(const v1::PlanJobResponse response,
                      connection->Call(connection->jobs(), &v1::JobService::Stub::PlanJob, request,
                                       kSubmitTimeout));
  const v1::Plan& plan = response.plan();
  if (invocation.format() != OutputFormat::kTable) {
    invocation.PrintObject(ToJson(response));
  } else {
    std::string text = plan.table();
    if (!absl::EndsWith(text, "\n")) text += "\n";
    if (plan.fits()) {
      absl::StrAppend(&text, "jobs ahead of it in the queue: ", response.jobs_ahead(), "\n");
    }
    if (response.has_user_limit()) {
      absl::StrAppend(&text, "a submit would be refused now: ", response.user_limit().message(),
                      "\n");
    }
    invocation.Print(PrintableLines(text));
  }
  // A limit that others of the user's jobs reach now says nothing of this one.
  const bool fits = plan.fits() && response.user_limit().reason() != v1::EXCEEDS_USER_LIMIT;
  return fits ? kExitDone : kExitDoesNotFit;
}

}  // namespace

void AddPlanCommand(CLI::App* app, CommandContext context) {
  const auto arguments = std::make_shared<PlanArguments>();
  CLI::App* const command =
      AddCommand(app, "plan", "The bytes a job needs on the server's hardware, and its queue",
                 context, [context, arguments] { return Plan(*context.invocation, *arguments); });
  AddJobFileArguments(command, &arguments->file, &arguments->overrides);
}

}  // namespace megatrain::client
