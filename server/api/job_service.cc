#include <grpcpp/support/server_callback.h>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "megatrain/v1/job_service.grpc.pb.h"
#include "server/api/conversion.h"
#include "server/api/job_filter.h"
#include "server/api/job_streams.h"
#include "server/api/page_token.h"
#include "server/api/record_cursor.h"
#include "server/api/resource_name.h"
#include "server/api/serve_api.h"
#include "server/base/error_reason.h"
#include "server/transport/rpc_service.h"

namespace megatrain {
namespace {

constexpr int kPageSizeDefault = 50;
constexpr int kPageSizeMax = 1000;

absl::Status CheckFile(const std::string& field, bool given, const v1::JobFile& file) {
  if (!given || file.yaml().empty()) {
    return InvalidField(absl::StrCat(field, ".yaml"), "is missing; it is the job file's text");
  }
  if (!file.base_directory().empty() && !absl::StartsWith(file.base_directory(), "/")) {
    return InvalidField(absl::StrCat(field, ".base_directory"),
                        absl::StrCat("expects an absolute path, got ", file.base_directory()));
  }
  return absl::OkStatus();
}

absl::StatusOr<CreateJobOptions> ToOptions(const v1::CreateJobRequest& request) {
  const v1::Job& job = request.job();
  MT_RETURN_IF_ERROR(CheckFile("job.file", job.has_file(), job.file()));
  CreateJobOptions options;
  options.file = FromProto(job.file());
  options.request_id = request.request_id();
  options.priority = job.priority();
  options.allow_change.assign(job.allow_change().begin(), job.allow_change().end());
  options.validate_only = request.validate_only();
  return options;
}

absl::StatusOr<int> PageSize(int wanted) {
  if (wanted < 0) {
    return InvalidField("page_size", absl::StrCat("expects 0 or more, got ", wanted));
  }
  return wanted == 0 ? kPageSizeDefault : std::min(wanted, kPageSizeMax);
}

// `*question` is what a page token is bound to.
absl::StatusOr<ListJobsOptions> ToOptions(const v1::ListJobsRequest& request,
                                          std::string* question) {
  ListJobsOptions options;
  MT_ASSIGN_OR_RETURN(options.page_size, PageSize(request.page_size()));
  if (request.order_by().empty() || request.order_by() == "create_time desc") {
    options.newest_first = true;
  } else if (request.order_by() == "create_time") {
    options.newest_first = false;
  } else {
    return InvalidField("order_by", "expects \"create_time\" or \"create_time desc\"");
  }
  MT_ASSIGN_OR_RETURN(options.filter, ParseJobFilter(request.filter()));
  *question = absl::StrCat(options.newest_first ? "desc " : "asc ", request.filter());
  MT_ASSIGN_OR_RETURN(options.after_number, ReadPageToken(request.page_token(), *question));
  return options;
}

absl::Status CheckView(v1::JobView view) {
  if (v1::JobView_IsValid(view)) return absl::OkStatus();
  return InvalidField("view", absl::StrCat("expects JOB_VIEW_BASIC or JOB_VIEW_FULL, got ",
                                           static_cast<int>(view)));
}

// megatrain.v1.JobService: checks the form of requests, calls the JobManager, and converts its
// answers.
//
// Thread safety: gRPC calls the public methods on any thread.
class JobService final : public RpcService<v1::JobService> {
 public:
  JobService(JobManager* manager, JobRecordsDirectory* records, const ServiceContext& services)
      : RpcService(services), manager_(manager), records_(records) {}

  UnaryReactor* CreateJob(CallContext* context, const v1::CreateJobRequest* request,
                          v1::Job* response) override {
    return Unary("CreateJob", AnswerOn::kQueue, context, request, response,
                 [=, this](const Caller& caller) {
                   MT_ASSIGN_OR_RETURN(const CreateJobOptions options, ToOptions(*request));
                   MT_RETURN_IF_ERROR(CheckView(request->view()));
                   MT_ASSIGN_OR_RETURN(const JobPtr job, manager_->Create(caller, options));
                   ToProto(*job, request->view(), response);
                   return absl::OkStatus();
                 });
  }

  UnaryReactor* PlanJob(CallContext* context, const v1::PlanJobRequest* request,
                        v1::PlanJobResponse* response) override {
    return Unary("PlanJob", AnswerOn::kQueue, context, request, response,
                 [=, this](const Caller& caller) {
                   MT_RETURN_IF_ERROR(CheckFile("file", request->has_file(), request->file()));
                   MT_ASSIGN_OR_RETURN(const JobPlan plan,
                                       manager_->Plan(caller, FromProto(request->file())));
                   response->set_jobs_ahead(plan.jobs_ahead);
                   if (!plan.limit_refusal.ok()) {
                     ToProto(plan.limit_refusal, response->mutable_user_limit());
                   }
                   ToProto(plan.report, response->mutable_plan());
                   return absl::OkStatus();
                 });
  }

  UnaryReactor* GetJob(CallContext* context, const v1::GetJobRequest* request,
                       v1::Job* response) override {
    return AnswerWithJob(
        "GetJob", AnswerOn::kCallback, context, request, response,
        [this](const Caller& caller, const std::string& id) { return manager_->Get(caller, id); });
  }

  UnaryReactor* ListJobs(CallContext* context, const v1::ListJobsRequest* request,
                         v1::ListJobsResponse* response) override {
    return Unary("ListJobs", AnswerOn::kCallback, context, request, response,
                 [=, this](const Caller& caller) {
                   std::string question;
                   MT_ASSIGN_OR_RETURN(const ListJobsOptions options,
                                       ToOptions(*request, &question));
                   MT_ASSIGN_OR_RETURN(const JobPage page, manager_->List(caller, options));
                   for (const JobPtr& job : page.jobs) {
                     ToProto(*job, v1::JOB_VIEW_BASIC, response->add_jobs());
                   }
                   if (page.next != 0) {
                     response->set_next_page_token(MakePageToken(page.next, question));
                   }
                   return absl::OkStatus();
                 });
  }

  UnaryReactor* PauseJob(CallContext* context, const v1::PauseJobRequest* request,
                         v1::Job* response) override {
    return AnswerWithJob("PauseJob", AnswerOn::kQueue, context, request, response,
                         [=, this](const Caller& caller, const std::string& id) {
                           return manager_->Pause(caller, id, request->release_host_memory());
                         });
  }

  UnaryReactor* ResumeJob(CallContext* context, const v1::ResumeJobRequest* request,
                          v1::Job* response) override {
    return AnswerWithJob("ResumeJob", AnswerOn::kQueue, context, request, response,
                         [=, this](const Caller& caller, const std::string& id) {
                           return manager_->Resume(
                               caller, id,
                               {request->allow_change().begin(), request->allow_change().end()});
                         });
  }

  UnaryReactor* CancelJob(CallContext* context, const v1::CancelJobRequest* request,
                          v1::Job* response) override {
    return AnswerWithJob("CancelJob", AnswerOn::kQueue, context, request, response,
                         [this](const Caller& caller, const std::string& id) {
                           return manager_->Cancel(caller, id);
                         });
  }

  UnaryReactor* DeleteJob(CallContext* context, const v1::DeleteJobRequest* request,
                          google::protobuf::Empty* response) override {
    return Unary("DeleteJob", AnswerOn::kQueue, context, request, response,
                 [=, this](const Caller& caller) {
                   MT_ASSIGN_OR_RETURN(const std::string id, ParseJobName("name", request->name()));
                   return manager_->Delete(caller, id);
                 });
  }

  UnaryReactor* CheckpointJob(CallContext* context, const v1::CheckpointJobRequest* request,
                              v1::Job* response) override {
    return AnswerWithJob("CheckpointJob", AnswerOn::kQueue, context, request, response,
                         [this](const Caller& caller, const std::string& id) {
                           return manager_->Checkpoint(caller, id);
                         });
  }

  UnaryReactor* ListCheckpoints(CallContext* context, const v1::ListCheckpointsRequest* request,
                                v1::ListCheckpointsResponse* response) override {
    return Unary("ListCheckpoints", AnswerOn::kQueue, context, request, response,
                 [=, this](const Caller& caller) {
                   MT_ASSIGN_OR_RETURN(const std::string id,
                                       ParseJobName("parent", request->parent()));
                   MT_ASSIGN_OR_RETURN(const int page_size, PageSize(request->page_size()));
                   const std::string question = absl::StrCat("checkpoints of ", id);
                   MT_ASSIGN_OR_RETURN(const int64_t before_step,
                                       ReadPageToken(request->page_token(), question));
                   MT_ASSIGN_OR_RETURN(const std::vector<JobCheckpoint> checkpoints,
                                       manager_->ListCheckpoints(caller, id));
                   for (const JobCheckpoint& checkpoint : checkpoints) {
                     if (before_step > 0 && checkpoint.step >= before_step) continue;
                     if (response->checkpoints_size() == page_size) {
                       const int64_t last = response->checkpoints(page_size - 1).step();
                       response->set_next_page_token(MakePageToken(last, question));
                       break;
                     }
                     ToProto(id, checkpoint, response->add_checkpoints());
                   }
                   return absl::OkStatus();
                 });
  }

  StreamReactor<v1::ExportJobResponse>* ExportJob(CallContext* context,
                                                  const v1::ExportJobRequest* request) override {
    return Stream<v1::ExportJobResponse>(
        "ExportJob", AnswerOn::kQueue, context, request, services_.streams,
        [=, this](const Caller& caller,
                  std::function<void()> wake) -> OpenedSource<v1::ExportJobResponse> {
          MT_ASSIGN_OR_RETURN(const JobCheckpointName name,
                              ParseCheckpointName("name", request->name()));
          const auto ended = std::make_shared<std::promise<absl::Status>>();
          MT_ASSIGN_OR_RETURN(const JobCheckpoint checkpoint,
                              manager_->Export(caller, name.job_id, name.step, request->directory(),
                                               [ended, wake](const absl::Status& status) {
                                                 // Nobody but the daemon's end cancels one.
                                                 ended->set_value(absl::IsCancelled(status)
                                                                      ? DaemonStopping()
                                                                      : status);
                                                 wake();
                                               }));
          v1::ExportedModel exported;
          exported.set_directory(request->directory());
          exported.set_step(checkpoint.step);
          return NewExportSource(std::move(exported), ended->get_future());
        });
  }

  StreamReactor<v1::WatchJobResponse>* WatchJob(CallContext* context,
                                                const v1::WatchJobRequest* request) override {
    return Stream<v1::WatchJobResponse>(
        "WatchJob", AnswerOn::kQueue, context, request, services_.streams,
        [=, this](const Caller& caller,
                  std::function<void()> wake) -> OpenedSource<v1::WatchJobResponse> {
          MT_ASSIGN_OR_RETURN(const std::string id, ParseJobName("name", request->name()));
          MT_RETURN_IF_ERROR(CheckView(request->view()));
          MT_ASSIGN_OR_RETURN(
              std::unique_ptr<JobWatch> watch,
              manager_->Watch(caller, id, request->start_sequence(), std::move(wake)));
          return NewWatchSource(id, std::move(watch), request->start_sequence(), request->view());
        });
  }

  StreamReactor<v1::StreamStepMetricsResponse>* StreamStepMetrics(
      CallContext* context, const v1::StreamStepMetricsRequest* request) override {
    return Stream<v1::StreamStepMetricsResponse>(
        "StreamStepMetrics", AnswerOn::kQueue, context, request, services_.streams,
        [=, this](const Caller& caller,
                  std::function<void()> wake) -> OpenedSource<v1::StreamStepMetricsResponse> {
          MT_ASSIGN_OR_RETURN(std::unique_ptr<RecordCursor> cursor,
                              OpenRecords(caller, *request, &JobRecords::metrics, std::move(wake)));
          return NewStepMetricsSource(std::move(cursor));
        });
  }

  StreamReactor<v1::StreamLogsResponse>* StreamLogs(CallContext* context,
                                                    const v1::StreamLogsRequest* request) override {
    return Stream<v1::StreamLogsResponse>(
        "StreamLogs", AnswerOn::kQueue, context, request, services_.streams,
        [=, this](const Caller& caller,
                  std::function<void()> wake) -> OpenedSource<v1::StreamLogsResponse> {
          MT_ASSIGN_OR_RETURN(std::unique_ptr<RecordCursor> cursor,
                              OpenRecords(caller, *request, &JobRecords::log, std::move(wake)));
          return NewLogSource(std::move(cursor));
        });
  }

 private:
  // JobRecords::metrics or JobRecords::log.
  using LogOf = const RecordLog& (JobRecords::*)() const;

  // Answers with the job that `act` gives for the id in the request, as it is after that.
  template <class Request, class Act>
  UnaryReactor* AnswerWithJob(const char* name, AnswerOn answer_on, CallContext* context,
                              const Request* request, v1::Job* response, Act act) {
    return Unary(name, answer_on, context, request, response, [=](const Caller& caller) {
      MT_ASSIGN_OR_RETURN(const std::string id, ParseJobName("name", request->name()));
      MT_RETURN_IF_ERROR(CheckView(request->view()));
      MT_ASSIGN_OR_RETURN(const JobPtr job, act(caller, id));
      ToProto(*job, request->view(), response);
      return absl::OkStatus();
    });
  }

  // Opens a log of the job that the request names, at the place that it names.
  template <class Request>
  absl::StatusOr<std::unique_ptr<RecordCursor>> OpenRecords(const Caller& caller,
                                                            const Request& request, LogOf log,
                                                            std::function<void()> wake) {
    MT_ASSIGN_OR_RETURN(const std::string id, ParseJobName("name", request.name()));
    MT_RETURN_IF_ERROR(manager_->Get(caller, id).status());
    absl::StatusOr<std::shared_ptr<JobRecords>> opened = records_->Open(id);
    if (!opened.ok()) {
      MT_RETURN_IF_ERROR(manager_->Get(caller, id).status());  // deleted in between
      return opened.status();
    }
    RecordsRequest records;
    records.records = *std::move(opened);
    records.start_sequence = request.start_sequence();
    records.follow = request.follow();
    records.ended = [this, caller, id]() -> absl::StatusOr<bool> {
      MT_ASSIGN_OR_RETURN(const JobPtr job, manager_->Get(caller, id));
      return IsEnded(job->state);
    };
    records.wake = std::move(wake);
    const RecordLog* const opened_log = &((*records.records).*log)();
    return RecordCursor::Open(std::move(records), opened_log);
  }

  JobManager* const manager_;
  JobRecordsDirectory* const records_;
};

}  // namespace

std::unique_ptr<grpc::Service> NewJobService(JobManager* manager, JobRecordsDirectory* records,
                                             const ServiceContext& services) {
  return std::make_unique<JobService>(manager, records, services);
}

}  // namespace megatrain
