// megatrain.v1.JobService: requests are converted and checked in form, and the JobManager is asked.
#ifndef MEGATRAIN_SERVER_RPC_JOB_SERVICE_H_
#define MEGATRAIN_SERVER_RPC_JOB_SERVICE_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "megatrain/v1/job_service.grpc.pb.h"
#include "server/jobs/job_manager.h"
#include "server/rpc/record_cursor.h"
#include "server/rpc/service_context.h"
#include "server/worker/job_records.h"

namespace megatrain {

class JobService final : public v1::JobService::CallbackService {
 public:
  // `manager` and `records` must outlive the server.
  JobService(JobManager* manager, JobRecordsDirectory* records, const ServiceContext& context)
      : manager_(manager), records_(records), context_(context) {}

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
  // Answers a control call with the job as it is after it.
  template <class Request, class Control>
  grpc::ServerUnaryReactor* AnswerControl(grpc::CallbackServerContext* context,
                                          const Request* request, v1::Job* response,
                                          Control control);
  absl::StatusOr<RecordsRequest> OpenRecords(const Caller& caller, const std::string& name,
                                             int64_t start_sequence, bool follow,
                                             std::function<void()> wake);

  JobManager* const manager_;
  JobRecordsDirectory* const records_;
  const ServiceContext context_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_RPC_JOB_SERVICE_H_
