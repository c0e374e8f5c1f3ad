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

  UnaryReactor* CreateJob(CallContext* context, const v1::CreateJobRequest* request,
                          v1::Job* response) override;
  UnaryReactor* PlanJob(CallContext* context, const v1::PlanJobRequest* request,
                        v1::PlanJobResponse* response) override;
  UnaryReactor* GetJob(CallContext* context, const v1::GetJobRequest* request,
                       v1::Job* response) override;
  UnaryReactor* ListJobs(CallContext* context, const v1::ListJobsRequest* request,
                         v1::ListJobsResponse* response) override;
  UnaryReactor* PauseJob(CallContext* context, const v1::PauseJobRequest* request,
                         v1::Job* response) override;
  UnaryReactor* ResumeJob(CallContext* context, const v1::ResumeJobRequest* request,
                          v1::Job* response) override;
  UnaryReactor* CancelJob(CallContext* context, const v1::CancelJobRequest* request,
                          v1::Job* response) override;
  UnaryReactor* DeleteJob(CallContext* context, const v1::DeleteJobRequest* request,
                          google::protobuf::Empty* response) override;
  UnaryReactor* CheckpointJob(CallContext* context, const v1::CheckpointJobRequest* request,
                              v1::Job* response) override;
  UnaryReactor* ListCheckpoints(CallContext* context, const v1::ListCheckpointsRequest* request,
                                v1::ListCheckpointsResponse* response) override;
  StreamReactor<v1::ExportJobResponse>* ExportJob(CallContext* context,
                                                  const v1::ExportJobRequest* request) override;
  StreamReactor<v1::WatchJobResponse>* WatchJob(CallContext* context,
                                                const v1::WatchJobRequest* request) override;
  StreamReactor<v1::StreamStepMetricsResponse>* StreamStepMetrics(
      CallContext* context, const v1::StreamStepMetricsRequest* request) override;
  StreamReactor<v1::StreamLogsResponse>* StreamLogs(CallContext* context,
                                                    const v1::StreamLogsRequest* request) override;

 private:
  // Answers with the job that `act` gives for the id in the request, as it is after that.
  template <class Request, class Act>
  UnaryReactor* AnswerWithJob(const char* name, AnswerOn answer_on, CallContext* context,
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
