// megatrain.v1.JobService: checks the form of requests, calls the JobManager, and converts its
// answers.
//
// Thread safety: gRPC calls the public methods on any thread.
#ifndef MEGATRAIN_SERVER_API_JOB_SERVICE_H_
#define MEGATRAIN_SERVER_API_JOB_SERVICE_H_

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "megatrain/v1/job_service.grpc.pb.h"
#include "server/api/record_cursor.h"
#include "server/manager/job_manager.h"
#include "server/transport/rpc_service.h"
#include "server/transport/service_context.h"
#include "server/worker/job_records.h"

namespace megatrain {

class JobService final : public RpcService<v1::JobService> {
 public:
  // `manager` and `records` must outlive the server.
  JobService(JobManager* manager, JobRecordsDirectory* records, const ServiceContext& services);

  grpc::ServerUnaryReactor* CreateJob(grpc::CallbackServerContext* context,
                                      const v1::CreateJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* PlanJob(grpc::CallbackServerContext* context,
                                    const v1::PlanJobRequest* request,
                                    v1::PlanJobResponse* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request, v1::Job* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* PauseJob(grpc::CallbackServerContext* context,
                                     const v1::PauseJobRequest* request,
                                     v1::Job* response) override;
  grpc::ServerUnaryReactor* ResumeJob(grpc::CallbackServerContext* context,
                                      const v1::ResumeJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* DeleteJob(grpc::CallbackServerContext* context,
                                      const v1::DeleteJobRequest* request,
                                      google::protobuf::Empty* response) override;
  grpc::ServerUnaryReactor* CheckpointJob(grpc::CallbackServerContext* context,
                                          const v1::CheckpointJobRequest* request,
                                          v1::Job* response) override;
  grpc::ServerUnaryReactor* ListCheckpoints(grpc::CallbackServerContext* context,
                                            const v1::ListCheckpointsRequest* request,
                                            v1::ListCheckpointsResponse* response) override;
  grpc::ServerWriteReactor<v1::ExportJobResponse>* ExportJob(
      grpc::CallbackServerContext* context, const v1::ExportJobRequest* request) override;
  grpc::ServerWriteReactor<v1::WatchJobResponse>* WatchJob(
      grpc::CallbackServerContext* context, const v1::WatchJobRequest* request) override;
  grpc::ServerWriteReactor<v1::StreamStepMetricsResponse>* StreamStepMetrics(
      grpc::CallbackServerContext* context, const v1::StreamStepMetricsRequest* request) override;
  grpc::ServerWriteReactor<v1::StreamLogsResponse>* StreamLogs(
      grpc::CallbackServerContext* context, const v1::StreamLogsRequest* request) override;

 private:
  // Answers with the job that `act` gives for the id in the request, as it is after that.
  template <class Request, class Act>
  grpc::ServerUnaryReactor* AnswerWithJob(const char* name, AnswerOn answer_on,
                                          grpc::CallbackServerContext* context,
                                          const Request* request, v1::Job* response, Act act);
  // JobRecords::metrics or JobRecords::log.
  using LogOf = const RecordLog& (JobRecords::*)() const;
  // Opens a log of the job that the request names, at the place that it names.
  template <class Request>
  absl::StatusOr<std::unique_ptr<RecordCursor>> OpenRecords(const Caller& caller,
                                                            const Request& request, LogOf log,
                                                            std::function<void()> wake);

  JobManager* const manager_;
  JobRecordsDirectory* const records_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_API_JOB_SERVICE_H_
