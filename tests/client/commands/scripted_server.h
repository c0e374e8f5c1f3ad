// A server whose streams a test scripts, for what no sound daemon does when a test wants it.
#ifndef MEGATRAIN_TESTS_CLIENT_COMMANDS_SCRIPTED_SERVER_H_
#define MEGATRAIN_TESTS_CLIENT_COMMANDS_SCRIPTED_SERVER_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "megatrain/v1/job_service.grpc.pb.h"
#include "megatrain/v1/node_service.grpc.pb.h"

namespace megatrain::client {

// Returns an error as a daemon makes it, with a reason.
inline grpc::Status Refusal(grpc::StatusCode code, const std::string& reason) {
  google::rpc::ErrorInfo info;
  info.set_domain("megatrain");
  info.set_reason(reason);
  google::rpc::Status details;
  details.add_details()->PackFrom(info);
  return grpc::Status(code, "refused", details.SerializeAsString());
}

// Calls without a script end at once, with OK and nothing sent. Scripts run on the server's threads
// and must be set before the call comes. The destructor cancels calls and waits for their scripts.
class ScriptedServer {
 public:
  template <class Response>
  using Script = std::function<grpc::Status(grpc::ServerContext*, grpc::ServerWriter<Response>*)>;

  explicit ScriptedServer(const std::string& socket) : address_("unix:" + socket) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address_, grpc::InsecureServerCredentials());
    builder.RegisterService(&job_service_);
    builder.RegisterService(&node_service_);
    server_ = builder.BuildAndStart();
    EXPECT_NE(server_, nullptr);
  }
  ~ScriptedServer() {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  // As --server and MEGATRAIN_SERVER have it.
  const std::string& address() const { return address_; }

  std::function<grpc::Status(v1::PlanJobResponse*)> plan_job;
  Script<v1::WatchJobResponse> watch_job;
  Script<v1::StreamStepMetricsResponse> metrics;
  Script<v1::StreamLogsResponse> logs;
  Script<v1::ExportJobResponse> export_job;
  Script<v1::WatchNodeResponse> watch_node;

 private:
  template <class Response>
  static grpc::Status Follow(const Script<Response>& script, grpc::ServerContext* context,
                             grpc::ServerWriter<Response>* writer) {
    return script ? script(context, writer) : grpc::Status::OK;
  }

  class JobService : public v1::JobService::Service {
   public:
    explicit JobService(ScriptedServer* owner) : owner_(owner) {}
    grpc::Status PlanJob(grpc::ServerContext*, const v1::PlanJobRequest*,
                         v1::PlanJobResponse* response) override {
      return owner_->plan_job ? owner_->plan_job(response) : grpc::Status::OK;
    }
    grpc::Status WatchJob(grpc::ServerContext* context, const v1::WatchJobRequest*,
                          grpc::ServerWriter<v1::WatchJobResponse>* writer) override {
      return Follow(owner_->watch_job, context, writer);
    }
    grpc::Status StreamStepMetrics(
        grpc::ServerContext* context, const v1::StreamStepMetricsRequest*,
        grpc::ServerWriter<v1::StreamStepMetricsResponse>* writer) override {
      return Follow(owner_->metrics, context, writer);
    }
    grpc::Status StreamLogs(grpc::ServerContext* context, const v1::StreamLogsRequest*,
                            grpc::ServerWriter<v1::StreamLogsResponse>* writer) override {
      return Follow(owner_->logs, context, writer);
    }
    grpc::Status ExportJob(grpc::ServerContext* context, const v1::ExportJobRequest*,
                           grpc::ServerWriter<v1::ExportJobResponse>* writer) override {
      return Follow(owner_->export_job, context, writer);
    }

   private:
    ScriptedServer* const owner_;
  };

  class NodeService : public v1::NodeService::Service {
   public:
    explicit NodeService(ScriptedServer* owner) : owner_(owner) {}
    grpc::Status WatchNode(grpc::ServerContext* context, const v1::WatchNodeRequest*,
                           grpc::ServerWriter<v1::WatchNodeResponse>* writer) override {
      return Follow(owner_->watch_node, context, writer);
    }

   private:
    ScriptedServer* const owner_;
  };

  const std::string address_;
  JobService job_service_{this};
  NodeService node_service_{this};
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_TESTS_CLIENT_COMMANDS_SCRIPTED_SERVER_H_
