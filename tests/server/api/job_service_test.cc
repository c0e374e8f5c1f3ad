#include <chrono>
#include <functional>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "server/base/error_reason.h"
#include "tests/server/api/service_fixture.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class JobServiceTest : public ServiceTest {
 protected:
  grpc::Status Get(const std::string& user, const std::string& name, v1::Job* job) {
    v1::GetJobRequest request;
    request.set_name(name);
    request.set_view(v1::JOB_VIEW_FULL);
    return jobs_->GetJob(As(user).get(), request, job);
  }

  grpc::Status List(const std::string& user, const v1::ListJobsRequest& request,
                    v1::ListJobsResponse* response) {
    return jobs_->ListJobs(As(user).get(), request, response);
  }

  // Every call that names a job, as `user`.
  std::vector<std::pair<std::string, grpc::Status>> CallAll(const std::string& user,
                                                            const std::string& name) {
    std::vector<std::pair<std::string, grpc::Status>> results;
    v1::Job job;
    results.emplace_back("GetJob", Get(user, name, &job));
    v1::PauseJobRequest pause;
    pause.set_name(name);
    results.emplace_back("PauseJob", jobs_->PauseJob(As(user).get(), pause, &job));
    v1::ResumeJobRequest resume;
    resume.set_name(name);
    results.emplace_back("ResumeJob", jobs_->ResumeJob(As(user).get(), resume, &job));
    v1::CancelJobRequest cancel;
    cancel.set_name(name);
    results.emplace_back("CancelJob", jobs_->CancelJob(As(user).get(), cancel, &job));
    v1::CheckpointJobRequest checkpoint;
    checkpoint.set_name(name);
    results.emplace_back("CheckpointJob", jobs_->CheckpointJob(As(user).get(), checkpoint, &job));
    v1::DeleteJobRequest deletion;
    deletion.set_name(name);
    google::protobuf::Empty nothing;
    results.emplace_back("DeleteJob", jobs_->DeleteJob(As(user).get(), deletion, &nothing));
    v1::ListCheckpointsRequest checkpoints;
    checkpoints.set_parent(name);
    v1::ListCheckpointsResponse list;
    results.emplace_back("ListCheckpoints",
                         jobs_->ListCheckpoints(As(user).get(), checkpoints, &list));
    {
      v1::ExportJobRequest request;
      request.set_name(name);
      request.set_directory("/tmp/out");
      const auto context = As(user);
      const auto reader = jobs_->ExportJob(context.get(), request);
      v1::ExportJobResponse message;
      while (reader->Read(&message)) {
      }
      results.emplace_back("ExportJob", reader->Finish());
    }
    {
      v1::WatchJobRequest request;
      request.set_name(name);
      const auto context = As(user);
      const auto reader = jobs_->WatchJob(context.get(), request);
      v1::WatchJobResponse message;
      while (reader->Read(&message)) {
      }
      results.emplace_back("WatchJob", reader->Finish());
    }
    {
      v1::StreamStepMetricsRequest request;
      request.set_name(name);
      const auto context = As(user);
      const auto reader = jobs_->StreamStepMetrics(context.get(), request);
      v1::StreamStepMetricsResponse message;
      while (reader->Read(&message)) {
      }
      results.emplace_back("StreamStepMetrics", reader->Finish());
    }
    {
      v1::StreamLogsRequest request;
      request.set_name(name);
      const auto context = As(user);
      const auto reader = jobs_->StreamLogs(context.get(), request);
      v1::StreamLogsResponse message;
      while (reader->Read(&message)) {
      }
      results.emplace_back("StreamLogs", reader->Finish());
    }
    return results;
  }
};

// ---- Creating ----

TEST_F(JobServiceTest, ACreatedJobIsThereWithItsFile) {
  v1::CreateJobRequest request = CreateRequest();
  request.mutable_job()->set_priority(-5);
  request.mutable_job()->mutable_file()->add_overrides("training.steps=7");
  v1::Job created, read;
  ASSERT_EQ(CodeAndReason(jobs_->CreateJob(As("anna").get(), request, &created)), "OK");
  EXPECT_EQ(created.state(), v1::Job::QUEUED);
  EXPECT_EQ(created.display_name(), "demo");
  EXPECT_EQ(created.user(), "anna");
  EXPECT_EQ(created.priority(), -5);
  EXPECT_TRUE(created.has_create_time());
  EXPECT_EQ(created.summary().sequence_length(), 1024);
  EXPECT_THAT(created.summary().checkpoint_directory(), HasSubstr(directory_.path()));
  ASSERT_EQ(CodeAndReason(Get("anna", created.name(), &read)), "OK");
  EXPECT_EQ(read.file().yaml(), Yaml());
  EXPECT_EQ(read.file().overrides(0), "training.steps=7");
  EXPECT_EQ(read.version(), created.version());
}

TEST_F(JobServiceTest, OutputOnlyFieldsOfARequestAreIgnored) {
  v1::CreateJobRequest request = CreateRequest();
  request.mutable_job()->set_name("jobs/mine");
  request.mutable_job()->set_state(v1::Job::SUCCEEDED);
  request.mutable_job()->set_user("root");
  v1::Job created;
  ASSERT_EQ(CodeAndReason(jobs_->CreateJob(As("anna").get(), request, &created)), "OK");
  EXPECT_NE(created.name(), "jobs/mine");
  EXPECT_EQ(created.state(), v1::Job::QUEUED);
  EXPECT_EQ(created.user(), "anna");
}

TEST_F(JobServiceTest, ValidateOnlyCreatesNothing) {
  v1::CreateJobRequest request = CreateRequest();
  request.set_validate_only(true);
  v1::Job job;
  ASSERT_EQ(CodeAndReason(jobs_->CreateJob(As("anna").get(), request, &job)), "OK");
  EXPECT_EQ(job.name(), "");
  EXPECT_EQ(job.display_name(), "demo");
  v1::ListJobsResponse list;
  ASSERT_TRUE(List("anna", {}, &list).ok());
  EXPECT_THAT(list.jobs(), IsEmpty());
}

TEST_F(JobServiceTest, TheSameRequestIdGivesTheSameJob) {
  v1::CreateJobRequest request = CreateRequest();
  request.set_request_id("8f14e45f-ceea-467f-a8d9-0123456789ab");
  v1::Job first, second, other;
  ASSERT_TRUE(jobs_->CreateJob(As("anna").get(), request, &first).ok());
  ASSERT_TRUE(jobs_->CreateJob(As("anna").get(), request, &second).ok());
  EXPECT_EQ(first.name(), second.name());
  ASSERT_TRUE(jobs_->CreateJob(As("bob").get(), request, &other).ok());
  EXPECT_NE(first.name(), other.name());

  *request.mutable_job()->mutable_file() = CreateRequest("another").job().file();
  const grpc::Status reused = jobs_->CreateJob(As("anna").get(), request, &second);
  EXPECT_EQ(CodeAndReason(reused), "ALREADY_EXISTS REQUEST_ID_REUSED");
}

TEST_F(JobServiceTest, WrongRequestsToCreateAreRefused) {
  v1::Job job;
  const auto refused = [&](const std::function<void(v1::CreateJobRequest*)>& change) {
    v1::CreateJobRequest request = CreateRequest();
    change(&request);
    return CodeAndReason(jobs_->CreateJob(As("anna").get(), request, &job));
  };
  const auto file = [](v1::CreateJobRequest* r) { return r->mutable_job()->mutable_file(); };
  EXPECT_EQ(refused([](auto* r) { r->clear_job(); }), "INVALID_ARGUMENT INVALID_FIELD");
  EXPECT_EQ(refused([&](auto* r) { file(r)->clear_yaml(); }), "INVALID_ARGUMENT INVALID_FIELD");
  EXPECT_EQ(refused([&](auto* r) { file(r)->set_base_directory("home"); }),
            "INVALID_ARGUMENT INVALID_FIELD");
  EXPECT_EQ(refused([](auto* r) { r->mutable_job()->set_priority(101); }),
            "INVALID_ARGUMENT INVALID_FIELD");
  EXPECT_EQ(refused([](auto* r) { r->mutable_job()->set_priority(1); }),
            "PERMISSION_DENIED NOT_PERMITTED");
  EXPECT_EQ(refused([](auto* r) { r->set_request_id(std::string(101, 'a')); }),
            "INVALID_ARGUMENT INVALID_FIELD");
  EXPECT_EQ(refused([](auto* r) { r->set_request_id("a b"); }), "INVALID_ARGUMENT INVALID_FIELD");
  EXPECT_EQ(refused([&](auto* r) { file(r)->set_yaml("trainin: {}"); }),
            "INVALID_ARGUMENT INVALID_JOB_FILE");
  EXPECT_EQ(refused([&](auto* r) { file(r)->set_yaml("{"); }), "INVALID_ARGUMENT INVALID_JOB_FILE");
  EXPECT_EQ(refused([&](auto* r) { file(r)->add_overrides("training.steps"); }),
            "INVALID_ARGUMENT INVALID_JOB_FILE");
  EXPECT_EQ(refused([&](auto* r) { file(r)->add_overrides("model.path=relative"); }),
            "INVALID_ARGUMENT INVALID_JOB_FILE");
  EXPECT_EQ(refused([&](auto* r) { file(r)->add_overrides("model.path=/not/there"); }),
            "INVALID_ARGUMENT INVALID_JOB_FILE");
  plan_ = [](const JobSpec&) {
    PlanReport report;
    report.table = "host: needs 5, has 3\n";
    return report;
  };
  EXPECT_EQ(refused([](auto*) {}), "FAILED_PRECONDITION DOES_NOT_FIT");
  v1::ListJobsResponse list;
  ASSERT_TRUE(List("root", {}, &list).ok());
  EXPECT_THAT(list.jobs(), IsEmpty());
}

// A request that is refused has changed nothing.
TEST_F(JobServiceTest, AViewThatIsNoneIsRefusedBeforeAnythingIsDone) {
  const auto none = static_cast<v1::JobView>(7);
  v1::CreateJobRequest create = CreateRequest();
  create.set_view(none);
  v1::Job job;
  EXPECT_EQ(CodeAndReason(jobs_->CreateJob(As("anna").get(), create, &job)),
            "INVALID_ARGUMENT INVALID_FIELD");
  v1::ListJobsResponse list;
  ASSERT_TRUE(List("anna", {}, &list).ok());
  EXPECT_THAT(list.jobs(), IsEmpty());
  const std::string id = Create();
  v1::CancelJobRequest cancel;
  cancel.set_name("jobs/" + id);
  cancel.set_view(none);
  EXPECT_EQ(CodeAndReason(jobs_->CancelJob(As("anna").get(), cancel, &job)),
            "INVALID_ARGUMENT INVALID_FIELD");
  ASSERT_TRUE(Get("anna", cancel.name(), &job).ok());
  EXPECT_EQ(job.state(), v1::Job::QUEUED);
}

TEST_F(JobServiceTest, APlanSaysWhetherAJobFits) {
  v1::PlanJobRequest request;
  v1::PlanJobResponse response;
  EXPECT_EQ(CodeAndReason(jobs_->PlanJob(As("anna").get(), request, &response)),
            "INVALID_ARGUMENT INVALID_FIELD");
  *request.mutable_file() = CreateRequest().job().file();
  ASSERT_EQ(CodeAndReason(jobs_->PlanJob(As("anna").get(), request, &response)), "OK");
  EXPECT_TRUE(response.plan().fits());
  EXPECT_EQ(response.plan().table(), "all fits\n");
  EXPECT_EQ(response.jobs_ahead(), 0);
  Create();
  ASSERT_TRUE(jobs_->PlanJob(As("bob").get(), request, &response).ok());
  EXPECT_EQ(response.jobs_ahead(), 1);
}

// ---- Who and which ----

TEST_F(JobServiceTest, JobsThatAreNotThereAreNotFound) {
  for (const auto& [call, status] : CallAll("anna", "jobs/nosuchjob")) {
    EXPECT_EQ(CodeAndReason(status), "NOT_FOUND JOB_NOT_FOUND") << call;
    EXPECT_EQ(InfoOf(status).metadata().at("job"), "nosuchjob") << call;
  }
}

TEST_F(JobServiceTest, JobsOfOthersAreNotFoundAndAnAdministratorSeesThem) {
  const std::string name = "jobs/" + Create("anna");
  std::set<std::string> messages;
  for (const auto& [call, status] : CallAll("bob", name)) {
    EXPECT_EQ(CodeAndReason(status), "NOT_FOUND JOB_NOT_FOUND") << call;
  }
  v1::ListJobsResponse list;
  ASSERT_TRUE(List("bob", {}, &list).ok());
  EXPECT_THAT(list.jobs(), IsEmpty());
  ASSERT_TRUE(List("root", {}, &list).ok());
  EXPECT_THAT(list.jobs(), SizeIs(1));
  v1::Job job;
  EXPECT_TRUE(Get("root", name, &job).ok());
}

TEST_F(JobServiceTest, CallersWhoAreNotKnownAreRefusedEverywhere) {
  const std::string name = "jobs/" + Create("anna");
  auto results = CallAll("", name);
  v1::Job job;
  results.emplace_back("CreateJob", jobs_->CreateJob(As("").get(), CreateRequest(), &job));
  v1::ListJobsResponse list;
  results.emplace_back("ListJobs", List("mallory", {}, &list));
  v1::PlanJobResponse plan;
  results.emplace_back("PlanJob", jobs_->PlanJob(As("").get(), {}, &plan));
  for (const auto& [call, status] : results) {
    EXPECT_EQ(CodeAndReason(status), "UNAUTHENTICATED UNAUTHENTICATED_CALLER") << call;
  }
}

TEST_F(JobServiceTest, NamesThatAreNoneAreRefused) {
  for (const std::string& name : {std::string(), std::string("demo"), std::string("jobs/a b"),
                                  std::string("jobs/../x"), "jobs/" + std::string(1000, 'a')}) {
    for (const auto& [call, status] : CallAll("anna", name)) {
      EXPECT_EQ(CodeAndReason(status), "INVALID_ARGUMENT INVALID_FIELD") << call << " " << name;
    }
  }
}

// ---- Control ----

TEST_F(JobServiceTest, ControlCallsStoreWhatIsAskedFor) {
  const std::string id = Create();
  Move(id, JobState::kPreparing);
  Move(id, JobState::kRunning);
  v1::Job job;
  v1::PauseJobRequest pause;
  pause.set_name("jobs/" + id);
  ASSERT_EQ(CodeAndReason(jobs_->PauseJob(As("anna").get(), pause, &job)), "OK");
  EXPECT_EQ(job.state(), v1::Job::PAUSING);
  EXPECT_EQ(job.reason(), v1::Job::USER_REQUEST);
  ASSERT_EQ(CodeAndReason(jobs_->PauseJob(As("anna").get(), pause, &job)), "OK");  // repeated
  v1::ResumeJobRequest resume;
  resume.set_name("jobs/" + id);
  ASSERT_EQ(CodeAndReason(jobs_->ResumeJob(As("anna").get(), resume, &job)), "OK");
  EXPECT_EQ(job.state(), v1::Job::RUNNING);
  v1::CheckpointJobRequest checkpoint;
  checkpoint.set_name("jobs/" + id);
  ASSERT_EQ(CodeAndReason(jobs_->CheckpointJob(As("anna").get(), checkpoint, &job)), "OK");
  EXPECT_EQ(engine_.Checkpoints(), 1);
  v1::CancelJobRequest cancel;
  cancel.set_name("jobs/" + id);
  ASSERT_EQ(CodeAndReason(jobs_->CancelJob(As("anna").get(), cancel, &job)), "OK");
  EXPECT_EQ(job.state(), v1::Job::CANCELLING);
}

TEST_F(JobServiceTest, WhatTheStateDoesNotAllowIsRefused) {
  const std::string id = Create();
  v1::Job job;
  v1::PauseJobRequest pause;
  pause.set_name("jobs/" + id);
  const grpc::Status status = jobs_->PauseJob(As("anna").get(), pause, &job);
  EXPECT_EQ(CodeAndReason(status), "FAILED_PRECONDITION ILLEGAL_TRANSITION");
  EXPECT_EQ(InfoOf(status).metadata().at("state"), "QUEUED");
  v1::CheckpointJobRequest checkpoint;
  checkpoint.set_name("jobs/" + id);
  EXPECT_EQ(CodeAndReason(jobs_->CheckpointJob(As("anna").get(), checkpoint, &job)),
            "FAILED_PRECONDITION ILLEGAL_TRANSITION");
  Move(id, JobState::kCancelled);
  v1::ResumeJobRequest resume;
  resume.set_name("jobs/" + id);
  EXPECT_EQ(CodeAndReason(jobs_->ResumeJob(As("anna").get(), resume, &job)),
            "FAILED_PRECONDITION ILLEGAL_TRANSITION");
}

TEST_F(JobServiceTest, BeforeJobsCanRunCheckpointsSayStarting) {
  const std::string id = Create();
  Move(id, JobState::kPreparing);
  Move(id, JobState::kRunning);
  engine_.AnswerCheckpointsWith(WithReason(absl::UnavailableError("starting"), v1::STARTING));
  v1::CheckpointJobRequest checkpoint;
  checkpoint.set_name("jobs/" + id);
  v1::Job job;
  EXPECT_EQ(CodeAndReason(jobs_->CheckpointJob(As("anna").get(), checkpoint, &job)),
            "UNAVAILABLE STARTING");
}

// ---- Load and limits ----

TEST_F(JobServiceTest, CallsWhoseDeadlineHasPassedAreNotActedOn) {
  std::promise<void> leave;
  const std::shared_future<void> left = leave.get_future().share();
  std::atomic<int> plans{0};
  const auto plan = plan_;
  plan_ = [&, plan, left](const JobSpec& spec) {
    ++plans;
    left.wait();
    return plan(spec);
  };
  v1::PlanJobRequest request;
  *request.mutable_file() = CreateRequest().job().file();
  // More than there are threads to act on them.
  std::vector<std::future<grpc::Status>> calls;
  constexpr int kCalls = 12;
  for (int i = 0; i < kCalls; ++i) {
    calls.push_back(std::async(std::launch::async, [&] {
      const auto context = As("anna");
      context->set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(300));
      v1::PlanJobResponse response;
      return jobs_->PlanJob(context.get(), request, &response);
    }));
  }
  for (auto& call : calls) {
    EXPECT_EQ(call.get().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  }
  // Reads are answered all the while.
  v1::ListJobsResponse list;
  EXPECT_TRUE(List("anna", {}, &list).ok());
  const int begun = plans;
  EXPECT_LT(begun, kCalls);
  leave.set_value();
  v1::PlanJobResponse response;
  EXPECT_TRUE(jobs_->PlanJob(As("anna").get(), request, &response).ok());
  EXPECT_EQ(plans, begun + 1);
}

TEST_F(JobServiceTest, HugeRequestsAreRefused) {
  v1::CreateJobRequest request = CreateRequest();
  request.mutable_job()->mutable_file()->set_yaml(std::string(3 << 20, '#'));
  v1::Job job;
  EXPECT_EQ(jobs_->CreateJob(As("anna").get(), request, &job).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  // Within the limit of messages, over that of files.
  request.mutable_job()->mutable_file()->set_yaml(std::string((1 << 20) + 1, '#'));
  EXPECT_EQ(CodeAndReason(jobs_->CreateJob(As("anna").get(), request, &job)),
            "INVALID_ARGUMENT INVALID_JOB_FILE");
}

TEST_F(JobServiceTest, HugeMetadataIsRefused) {
  // Its connection may be closed; those of others are not.
  grpc::ChannelArguments own;
  own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto stub = v1::JobService::NewStub(
      grpc::CreateCustomChannel(options_.listen[0], grpc::InsecureChannelCredentials(), own));
  const auto context = As("anna");
  context->AddMetadata("large", std::string(100000, 'a'));
  v1::Job job;
  EXPECT_FALSE(stub->GetJob(context.get(), {}, &job).ok());
  Create();  // the daemon goes on
}

TEST_F(JobServiceTest, WhatTheDaemonStoredIsThereAfterARestart) {
  const std::string id = Create();
  Move(id, JobState::kPreparing);
  Move(id, JobState::kRunning);
  StopDaemon();
  StartDaemon();
  v1::Job job;
  ASSERT_EQ(CodeAndReason(Get("anna", "jobs/" + id, &job)), "OK");
  EXPECT_EQ(job.state(), v1::Job::QUEUED);
  EXPECT_EQ(job.reason(), v1::Job::PROCESS_RESTART);
  EXPECT_EQ(job.file().yaml(), Yaml());
}

}  // namespace
}  // namespace megatrain
