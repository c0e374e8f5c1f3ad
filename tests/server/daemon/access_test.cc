// Every RPC by role: the owner of a job, another user, an administrator, and someone who is not
// known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/api/service_fixture.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class AccessTest : public ServiceTest {
 protected:
  struct Rpc {
    std::string name;
    // As `user`, about the job "jobs/ID". "OK", or code and reason.
    std::function<std::string(const std::string& user, const std::string& job)> call;
    // What the owner and an administrator are told of a queued job.
    std::string allowed;
  };

  template <class Stub, class Request, class Response>
  static std::function<std::string(const std::string&, const std::string&)> Unary(
      Stub* stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*)) {
    return [stub, method](const std::string& user, const std::string& job) {
      Request request;
      request.set_name(job);
      Response response;
      return CodeAndReason((stub->*method)(As(user).get(), request, &response));
    };
  }
  // The first message is the answer.
  template <class Stub, class Request, class Response>
  static std::function<std::string(const std::string&, const std::string&)> Stream(
      Stub* stub,
      std::unique_ptr<grpc::ClientReader<Response>> (Stub::*method)(grpc::ClientContext*,
                                                                    const Request&)) {
    return [stub, method](const std::string& user, const std::string& job) {
      Request request;
      request.set_name(job);
      if constexpr (std::is_same_v<Request, v1::ExportJobRequest>) request.set_directory("/x/y");
      const auto context = As(user);
      const auto reader = (stub->*method)(context.get(), request);
      Response response;
      if (reader->Read(&response)) {
        context->TryCancel();
        reader->Finish();
        return std::string("OK");
      }
      return CodeAndReason(reader->Finish());
    };
  }

  // Those about one job.
  std::vector<Rpc> JobRpcs() {
    using Jobs = v1::JobService::Stub;
    Jobs* const jobs = jobs_.get();
    const std::string not_running = "FAILED_PRECONDITION ILLEGAL_TRANSITION";
    return {
        {"GetJob", Unary(jobs, &Jobs::GetJob), "OK"},
        {"PauseJob", Unary(jobs, &Jobs::PauseJob), not_running},
        {"ResumeJob", Unary(jobs, &Jobs::ResumeJob), "OK"},
        {"DeleteJob", Unary(jobs, &Jobs::DeleteJob), not_running},
        {"CheckpointJob", Unary(jobs, &Jobs::CheckpointJob), not_running},
        {"ListCheckpoints",
         [jobs](const std::string& user, const std::string& job) {
           v1::ListCheckpointsRequest request;
           request.set_parent(job);
           v1::ListCheckpointsResponse response;
           return CodeAndReason(jobs->ListCheckpoints(As(user).get(), request, &response));
         },
         "OK"},
        {"ExportJob", Stream(jobs, &Jobs::ExportJob), "NOT_FOUND CHECKPOINT_NOT_FOUND"},
        {"WatchJob", Stream(jobs, &Jobs::WatchJob), "OK"},
        {"StreamStepMetrics", Stream(jobs, &Jobs::StreamStepMetrics), "OK"},
        {"StreamLogs", Stream(jobs, &Jobs::StreamLogs), "OK"},
        {"CancelJob", Unary(jobs, &Jobs::CancelJob), "OK"},
    };
  }
  // Those about none.
  std::vector<Rpc> OtherRpcs() {
    using Nodes = v1::NodeService::Stub;
    v1::JobService::Stub* const jobs = jobs_.get();
    return {
        {"CreateJob",
         [this, jobs](const std::string& user, const std::string&) {
           v1::Job job;
           return CodeAndReason(jobs->CreateJob(As(user).get(), CreateRequest(), &job));
         },
         "OK"},
        {"PlanJob",
         [this, jobs](const std::string& user, const std::string&) {
           v1::PlanJobRequest request;
           *request.mutable_file() = CreateRequest().job().file();
           v1::PlanJobResponse response;
           return CodeAndReason(jobs->PlanJob(As(user).get(), request, &response));
         },
         "OK"},
        {"ListJobs",
         [jobs](const std::string& user, const std::string&) {
           v1::ListJobsResponse response;
           return CodeAndReason(jobs->ListJobs(As(user).get(), v1::ListJobsRequest(), &response));
         },
         "OK"},
        {"GetNode", Unary(nodes_.get(), &Nodes::GetNode), "OK"},
        {"WatchNode", Stream(nodes_.get(), &Nodes::WatchNode), "OK"},
    };
  }
  std::vector<std::string> List(const std::string& user) {
    v1::ListJobsResponse response;
    EXPECT_TRUE(jobs_->ListJobs(As(user).get(), v1::ListJobsRequest(), &response).ok());
    std::vector<std::string> names;
    for (const v1::Job& job : response.jobs()) names.push_back(job.name());
    return names;
  }
  v1::Job Get(const std::string& name) {
    v1::GetJobRequest request;
    request.set_name(name);
    v1::Job job;
    EXPECT_TRUE(jobs_->GetJob(As("root").get(), request, &job).ok());
    return job;
  }
};

TEST_F(AccessTest, TheTableHasEveryRpc) {
  int methods = 0;
  for (const auto* service :
       {v1::Job::descriptor()->file()->pool()->FindServiceByName("megatrain.v1.JobService"),
        v1::Job::descriptor()->file()->pool()->FindServiceByName("megatrain.v1.NodeService")}) {
    ASSERT_NE(service, nullptr);
    methods += service->method_count();
  }
  EXPECT_EQ(JobRpcs().size() + OtherRpcs().size(), static_cast<size_t>(methods));
}

TEST_F(AccessTest, WhoMayDoWhatWithAJob) {
  for (const Rpc& rpc : JobRpcs()) {
    SCOPED_TRACE(rpc.name);
    const std::string job = "jobs/" + Create("anna");
    const v1::Job before = Get(job);
    EXPECT_EQ(rpc.call("bob", job), "NOT_FOUND JOB_NOT_FOUND") << "as if it did not exist";
    EXPECT_EQ(rpc.call("", job), "UNAUTHENTICATED UNAUTHENTICATED_CALLER");
    EXPECT_EQ(rpc.call("stranger", job), "UNAUTHENTICATED UNAUTHENTICATED_CALLER");
    EXPECT_EQ(rpc.call("", "jobs/none"), "UNAUTHENTICATED UNAUTHENTICATED_CALLER")
        << "who is not known is not told what there is";
    EXPECT_EQ(Get(job).version(), before.version()) << "nothing has changed";
    EXPECT_EQ(rpc.call("anna", job), rpc.allowed);
    EXPECT_EQ(rpc.call("root", "jobs/" + Create("anna")), rpc.allowed);
  }
}

TEST_F(AccessTest, WhoMayDoWhatWithoutAJob) {
  for (const Rpc& rpc : OtherRpcs()) {
    SCOPED_TRACE(rpc.name);
    EXPECT_EQ(rpc.call("", "nodes/local"), "UNAUTHENTICATED UNAUTHENTICATED_CALLER");
    EXPECT_EQ(rpc.call("stranger", "nodes/local"), "UNAUTHENTICATED UNAUTHENTICATED_CALLER");
    for (const char* user : {"anna", "bob", "root"}) {
      EXPECT_EQ(rpc.call(user, "nodes/local"), rpc.allowed) << user;
    }
  }
}

class RevocableAuthenticator : public TestAuthenticator {
 public:
  std::function<absl::Status()> Recheck(const grpc::ServerContextBase& context) const override {
    const bool is_bob = Authenticate(context)->user == "bob";
    return [this, is_bob] {
      return is_bob && bob_is_out ? absl::UnauthenticatedError("no more") : absl::OkStatus();
    };
  }

  std::atomic<bool> bob_is_out{false};
};

TEST_F(AccessTest, StreamsEndWhenTheirCallerIsNotLetInAnyMore) {
  RevocableAuthenticator authenticator;
  std::atomic<int> refusals{0};
  GrpcServerOptions options = options_;
  options.refusal_observer = [&refusals](const Refusal&) { ++refusals; };
  options.listen = {"unix:" + directory_.path() + "/other.sock"};
  const auto server =
      ServeApi(options, &authenticator, manager_.get(), records_.get(), [this] { return node_; });
  ASSERT_TRUE(server.ok()) << server.status();
  const auto stub = v1::JobService::NewStub(
      grpc::CreateChannel(options.listen[0], grpc::InsecureChannelCredentials()));
  v1::WatchJobRequest annas, bobs;
  annas.set_name("jobs/" + Create("anna"));
  bobs.set_name("jobs/" + Create("bob"));
  const auto annas_context = As("anna"), bobs_context = As("bob");
  const auto annas_reader = stub->WatchJob(annas_context.get(), annas);
  const auto bobs_reader = stub->WatchJob(bobs_context.get(), bobs);
  v1::WatchJobResponse response;
  EXPECT_TRUE(bobs_reader->Read(&response));
  authenticator.bob_is_out = true;
  while (bobs_reader->Read(&response)) {
  }
  EXPECT_EQ(CodeAndReason(bobs_reader->Finish()), "UNAUTHENTICATED UNAUTHENTICATED_CALLER");
  EXPECT_EQ(refusals, 1) << "it is told";
  EXPECT_TRUE(annas_reader->Read(&response));
  annas_context->TryCancel();
  annas_reader->Finish();
}

// Bob's account is in a directory service that does not answer.
class WaitingAuthenticator : public TestAuthenticator {
 public:
  absl::StatusOr<Caller> Authenticate(const grpc::ServerContextBase& context) const override {
    absl::StatusOr<Caller> caller = TestAuthenticator::Authenticate(context);
    if (caller.ok() && caller->user == "bob") answered.wait(false);
    return caller;
  }
  std::optional<absl::StatusOr<Caller>> AuthenticateAtOnce(
      const grpc::ServerContextBase& context) const override {
    absl::StatusOr<Caller> caller = TestAuthenticator::Authenticate(context);
    if (caller.ok() && caller->user == "bob") return std::nullopt;
    return caller;
  }

  std::atomic<bool> answered{false};
};

TEST_F(AccessTest, NobodyWaitsForTheAccountsOfOthers) {
  WaitingAuthenticator authenticator;
  GrpcServerOptions options = options_;
  options.listen = {"unix:" + directory_.path() + "/other.sock"};
  const auto server =
      ServeApi(options, &authenticator, manager_.get(), records_.get(), [this] { return node_; });
  ASSERT_TRUE(server.ok()) << server.status();
  const auto channel = grpc::CreateChannel(options.listen[0], grpc::InsecureChannelCredentials());
  const auto stub = v1::JobService::NewStub(channel);
  v1::GetJobRequest annas, bobs;
  annas.set_name("jobs/" + Create("anna"));
  bobs.set_name("jobs/" + Create("bob"));

  std::string bob_was_told, bob_was_streamed;
  std::thread bob([&] {
    v1::Job job;
    bob_was_told = CodeAndReason(stub->GetJob(As("bob").get(), bobs, &job));
  });
  std::thread bobs_watch([&] {
    v1::WatchJobRequest request;
    request.set_name(bobs.name());
    const auto context = As("bob");
    const auto reader = stub->WatchJob(context.get(), request);
    v1::WatchJobResponse response;
    bob_was_streamed = reader->Read(&response) ? "OK" : "nothing";
    context->TryCancel();
    reader->Finish();
  });
  for (int i = 0; i < 3; ++i) {
    v1::Job job;
    EXPECT_EQ(CodeAndReason(stub->GetJob(As("anna").get(), annas, &job)), "OK");
  }
  authenticator.answered = true;
  authenticator.answered.notify_all();
  bob.join();
  bobs_watch.join();
  EXPECT_EQ(bob_was_told, "OK");
  EXPECT_EQ(bob_was_streamed, "OK");
}

// No account is remembered.
class LookingUpAuthenticator : public TestAuthenticator {
 public:
  std::optional<absl::StatusOr<Caller>> AuthenticateAtOnce(
      const grpc::ServerContextBase&) const override {
    return std::nullopt;
  }
};

TEST_F(AccessTest, WhoWasLookedUpAndIsNotKnownIsTold) {
  LookingUpAuthenticator authenticator;
  std::atomic<int> refusals{0};
  GrpcServerOptions options = options_;
  options.listen = {"unix:" + directory_.path() + "/other.sock"};
  options.refusal_observer = [&refusals](const Refusal&) { ++refusals; };
  const auto server =
      ServeApi(options, &authenticator, manager_.get(), records_.get(), [this] { return node_; });
  ASSERT_TRUE(server.ok()) << server.status();
  const auto stub = v1::JobService::NewStub(
      grpc::CreateChannel(options.listen[0], grpc::InsecureChannelCredentials()));
  v1::ListJobsResponse list;
  EXPECT_TRUE(stub->ListJobs(As("anna").get(), {}, &list).ok());
  EXPECT_EQ(refusals, 0);
  EXPECT_EQ(CodeAndReason(stub->ListJobs(As("mallory").get(), {}, &list)),
            "UNAUTHENTICATED UNAUTHENTICATED_CALLER");
  EXPECT_EQ(refusals, 1);
}

TEST_F(AccessTest, ListsShowOnesOwn) {
  const std::string annas = "jobs/" + Create("anna"), bobs = "jobs/" + Create("bob");
  EXPECT_THAT(List("anna"), ElementsAre(annas));
  EXPECT_THAT(List("bob"), ElementsAre(bobs));
  EXPECT_THAT(List("root"), ElementsAre(bobs, annas));
  v1::ListJobsRequest request;
  request.set_filter("user = \"anna\"");
  v1::ListJobsResponse response;
  ASSERT_TRUE(jobs_->ListJobs(As("bob").get(), request, &response).ok());
  EXPECT_THAT(response.jobs(), IsEmpty()) << "a filter shows no more";
}

TEST_F(AccessTest, TheNodeIsSeenToBeBusyNotWithWhat) {
  node_.mutable_jobs()->set_running(1);
  node_.mutable_jobs()->set_queued(2);
  const std::string id = Create("anna", "annas-secret");
  v1::GetNodeRequest request;
  request.set_name("nodes/local");
  v1::Node node;
  ASSERT_TRUE(nodes_->GetNode(As("bob").get(), request, &node).ok());
  EXPECT_EQ(node.jobs().running(), 1);
  EXPECT_EQ(node.jobs().queued(), 2);
  EXPECT_THAT(node.DebugString(), Not(HasSubstr("anna")));
  EXPECT_THAT(node.DebugString(), Not(HasSubstr(id)));
}

}  // namespace
}  // namespace megatrain
