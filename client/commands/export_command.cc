// megatrain export JOB --out DIR
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/commands/command.h"
#include "client/connection/connection.h"
#include "client/context/job_file.h"
#include "client/context/job_name.h"
#include "client/output/proto_json.h"
#include "engine/base/status.h"

namespace megatrain::client {
namespace {

struct ExportArguments {
  std::string job;
  std::string out;
};

absl::StatusOr<ExitCode> Export(const Invocation& invocation, const ExportArguments& arguments) {
  v1::ExportJobRequest request;
  MT_ASSIGN_OR_RETURN(*request.mutable_name(), ParseJobOrCheckpointName(arguments.job));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, invocation.Connect());
  MT_ASSIGN_OR_RETURN(*request.mutable_directory(),
                      PathOnServer(arguments.out, connection->address()));
  v1::ExportedModel exported;
  for (bool renewed = false;; renewed = true) {
    const Connection::StreamCall call = connection->NewStream();
    const auto reader = connection->jobs()->ExportJob(call.context.get(), request);
    v1::ExportJobResponse response;
    while (reader->Read(&response)) {
      if (response.has_exported()) exported = response.exported();
    }
    const grpc::Status status = reader->Finish();
    if (status.ok()) break;
    const absl::Status error = connection->Explain(status);
    if (renewed || !connection->RenewToken(error, call.token)) return error;
  }
  if (invocation.quiet) {
    invocation.Print(exported.directory() + "\n");
  } else if (invocation.format() != OutputFormat::kTable) {
    invocation.PrintObject(ToJson(exported));
  } else {
    invocation.Print(absl::StrCat("the model after step ", exported.step(), " is in ",
                                  Printable(exported.directory()), "\n"));
  }
  return kExitDone;
}

}  // namespace

void AddExportCommand(CLI::App* app, CommandContext context) {
  const auto arguments = std::make_shared<ExportArguments>();
  CLI::App* const command =
      AddCommand(app, "export", "Write a job's newest checkpoint as a Hugging Face directory",
                 context, [context, arguments] { return Export(*context.invocation, *arguments); });
  AddJobArgument(command, &arguments->job);
  command->add_option("--out", arguments->out, "an empty or new directory on the daemon's machine")
      ->required()
      ->type_name("DIR");
}

}  // namespace megatrain::client
