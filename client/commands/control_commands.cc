// megatrain pause, resume, cancel, checkpoint
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands/command.h"
#include "client/connection/connection.h"
#include "client/context/job_name.h"
#include "client/output/proto_json.h"
#include "engine/base/status.h"

namespace megatrain::client {
namespace {

template <class Request>
using Method = grpc::Status (v1::JobService::Stub::*)(grpc::ClientContext*, const Request&,
                                                      v1::Job*);

struct Control {
  std::string job;
  bool release_host = false;
  std::vector<std::string> allow_change;
};

void SetOptions(const Control& control, v1::PauseJobRequest* request) {
  request->set_release_host_memory(control.release_host);
}
void SetOptions(const Control& control, v1::ResumeJobRequest* request) {
  *request->mutable_allow_change() = {control.allow_change.begin(), control.allow_change.end()};
}
template <class Request>
void SetOptions(const Control&, Request*) {}

template <class Request>
absl::StatusOr<ExitCode> Run(const Invocation& invocation, const Control& control,
                             Method<Request> method, const char* done) {
  Request request;
  MT_ASSIGN_OR_RETURN(*request.mutable_name(), ParseJobName(control.job));
  request.set_view(invocation.view());
  SetOptions(control, &request);
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, invocation.Connect());
  MT_ASSIGN_OR_RETURN(const v1::Job job, connection->Call(connection->jobs(), method, request));
  if (invocation.quiet) {
    invocation.Print(job.name() + "\n");
  } else if (invocation.format() != OutputFormat::kTable) {
    invocation.PrintObject(ToJson(job));
  } else {
    invocation.Print(absl::StrCat(job.name(), " (", Printable(job.display_name()), ") is ",
                                  v1::Job::State_Name(job.state()), done, "\n"));
  }
  return kExitDone;
}

template <class Request>
std::shared_ptr<Control> Add(CLI::App* app, const char* name, const char* description,
                             CommandContext context, Method<Request> method, const char* done,
                             CLI::App** command) {
  const auto control = std::make_shared<Control>();
  *command = AddCommand(app, name, description, context, [context, control, method, done] {
    return Run<Request>(*context.invocation, *control, method, done);
  });
  AddJobArgument(*command, &control->job);
  return control;
}

}  // namespace

void AddControlCommands(CLI::App* app, CommandContext context) {
  using Stub = v1::JobService::Stub;
  CLI::App* command = nullptr;
  const std::shared_ptr<Control> pause = Add<v1::PauseJobRequest>(
      app, "pause", "Free the device within a step; the job keeps its host memory", context,
      &Stub::PauseJob, "", &command);
  command->add_flag("--release-host", pause->release_host,
                    "save it and give its host memory back too");
  const std::shared_ptr<Control> resume = Add<v1::ResumeJobRequest>(
      app, "resume", "Put a paused job back in the queue", context, &Stub::ResumeJob, "", &command);
  AddAllowChangeOption(command, &resume->allow_change);
  Add<v1::CancelJobRequest>(app, "cancel", "End a job within a step; its checkpoints stay", context,
                            &Stub::CancelJob, "", &command);
  Add<v1::CheckpointJobRequest>(
      app, "checkpoint", "Ask a running job for a checkpoint after its step", context,
      &Stub::CheckpointJob, " and saves a checkpoint after its step", &command);
}

}  // namespace megatrain::client
