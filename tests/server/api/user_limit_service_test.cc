// What callers are told of the limits of users.
#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "server/jobs/user_limits.h"
#include "tests/server/api/service_fixture.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

class UserLimitServiceTest : public ServiceTest {
 protected:
  // Begins to serve the daemon's jobs at another address, where `limits` apply.
  void Serve(const UserLimits& limits) {
    limits_.Set(limits);
    JobManager::Options options;
    options.plan = [this](const JobSpec& spec, FileSystem*) { return plan_(spec); };
    options.limits = &limits_;
    limited_manager_ = std::make_unique<JobManager>(ledger_.get(), std::move(options));
    GrpcServerOptions own = options_;
    own.listen = {"unix:" + directory_.path() + "/limited.sock"};
    auto server = ServeApi(own, &authenticator_, limited_manager_.get(), records_.get(),
                           [this] { return node_; });
    ASSERT_TRUE(server.ok()) << server.status();
    limited_server_ = *std::move(server);
    limited_jobs_ = v1::JobService::NewStub(
        grpc::CreateChannel(own.listen[0], grpc::InsecureChannelCredentials()));
  }
  void TearDown() override {
    limited_server_.reset();
    limited_manager_.reset();
    ServiceTest::TearDown();
  }

  v1::PlanJobResponse Plan(const std::string& user) {
    v1::PlanJobRequest request;
    *request.mutable_file() = CreateRequest().job().file();
    v1::PlanJobResponse response;
    EXPECT_EQ(CodeAndReason(limited_jobs_->PlanJob(As(user).get(), request, &response)), "OK");
    return response;
  }

  SharedUserLimits limits_{UserLimits()};
  std::unique_ptr<JobManager> limited_manager_;
  std::unique_ptr<GrpcServer> limited_server_;
  std::unique_ptr<v1::JobService::Stub> limited_jobs_;
};

TEST_F(UserLimitServiceTest, APlanTellsWhyASubmitWouldBeRefusedNow) {
  Serve({.queued_jobs = 1});
  EXPECT_FALSE(Plan("anna").has_user_limit());
  Create("anna");
  const v1::PlanJobResponse planned = Plan("anna");
  EXPECT_TRUE(planned.plan().fits());
  ASSERT_TRUE(planned.has_user_limit());
  EXPECT_EQ(planned.user_limit().reason(), v1::LIMIT_REACHED);
  EXPECT_EQ(planned.user_limit().limit(), "limits.queued_jobs_per_user");
  EXPECT_EQ(planned.user_limit().value(), 1);
  EXPECT_THAT(planned.user_limit().message(), HasSubstr("you have 1 job in the queue"));
  EXPECT_FALSE(Plan("bob").has_user_limit()) << "the limit is each user's own";
}

TEST_F(UserLimitServiceTest, ARefusedSubmitNamesTheLimit) {
  Serve({.queued_jobs = 2});
  v1::Job job;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(CodeAndReason(limited_jobs_->CreateJob(As("anna").get(), CreateRequest(), &job)),
              "OK");
  }
  const grpc::Status refused = limited_jobs_->CreateJob(As("anna").get(), CreateRequest(), &job);
  EXPECT_EQ(CodeAndReason(refused), "RESOURCE_EXHAUSTED LIMIT_REACHED");
  EXPECT_EQ(InfoOf(refused).metadata().at("limit"), "limits.queued_jobs_per_user");
  EXPECT_EQ(InfoOf(refused).metadata().at("value"), "2");
}

}  // namespace
}  // namespace megatrain
