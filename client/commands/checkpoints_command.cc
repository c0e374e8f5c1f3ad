// megatrain checkpoints JOB
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/checkpoint_list.h"
#include "client/commands/command.h"
#include "client/connection/connection.h"
#include "client/context/job_name.h"
#include "client/output/proto_json.h"
#include "client/output/proto_time.h"
#include "client/output/table.h"
#include "engine/base/status.h"

namespace megatrain::client {
namespace {

absl::StatusOr<ExitCode> Checkpoints(const Invocation& invocation, const std::string& argument) {
  MT_ASSIGN_OR_RETURN(const std::string name, ParseJobName(argument));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, invocation.Connect());
  MT_ASSIGN_OR_RETURN(const std::vector<v1::Checkpoint> checkpoints,
                      ListCheckpoints(connection.get(), name));
  if (invocation.quiet) {
    for (const v1::Checkpoint& each : checkpoints) invocation.Print(each.name() + "\n");
    return kExitDone;
  }
  if (invocation.format() != OutputFormat::kTable) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const v1::Checkpoint& each : checkpoints) list.push_back(ToJson(each));
    invocation.PrintObject(list);
    return kExitDone;
  }
  if (checkpoints.empty()) {
    invocation.Note(absl::StrCat(name, " has no checkpoint yet"));
    return kExitDone;
  }
  const Environment& environment = invocation.environment();
  Table table({{.heading = "STEP", .right = true},
               {.heading = "SIZE", .right = true},
               {.heading = "WRITTEN", .drop_order = 1},
               {.heading = "BEST", .drop_order = 2},
               {.heading = "DIRECTORY", .width_min = 20}});
  for (const v1::Checkpoint& each : checkpoints) {
    table.AddRow(
        {absl::StrCat(each.step()), SizeText(each.bytes()),
         FormatLocalTime(ToTime(each.create_time()), environment.zone),
         each.has_best_eval_loss() ? absl::StrCat("eval_loss ", each.best_eval_loss()) : "",
         each.directory()});
  }
  invocation.Print(table.Render(invocation.table_width(), environment.charset));
  return kExitDone;
}

}  // namespace

void AddCheckpointsCommand(CLI::App* app, CommandContext context) {
  const auto job = std::make_shared<std::string>();
  AddJobArgument(
      AddCommand(app, "checkpoints", "The verified checkpoints of a job, the newest first", context,
                 [context, job] { return Checkpoints(*context.invocation, *job); }),
      job.get());
}

}  // namespace megatrain::client
