// The server and what callers may do to it: nonsense in raw bytes, calls that stay open.
#include "server/transport/grpc_server.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "server/identity/caller_authenticator.h"
#include "tests/server/api/service_fixture.h"
#include "tests/server/transport/raw_call.h"

namespace megatrain {
namespace {

class GrpcServerTest : public ServiceTest {
 protected:
  grpc::Status Call(const std::string& method, const std::string& request, std::string* response) {
    return RawCall(Channel(), As("anna").get(), method, request, response);
  }
};

TEST_F(GrpcServerTest, MalformedRequestsAreRefusedAndTheDaemonGoesOn) {
  std::string response;
  for (const char* method : {"GetJob", "CreateJob", "WatchJob", "StreamStepMetrics"}) {
    const grpc::Status status =
        Call(std::string("/megatrain.v1.JobService/") + method, "\xFF\xFF\xFF\xFF\x07", &response);
    EXPECT_FALSE(status.ok()) << method;
  }
  EXPECT_EQ(Call("/megatrain.v1.JobService/NoSuchCall", "", &response).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
  Create();
}

TEST_F(GrpcServerTest, ConnectionsThatSpeakNoHttpAreDroppedAndTheDaemonGoesOn) {
  for (int i = 0; i < 20; ++i) {
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    const std::string path = options_.listen[0].substr(5);
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    const std::string noise = i % 2 == 0 ? std::string(5000, '\xA5') : "GET / HTTP/1.0\r\n\r\n";
    EXPECT_GT(write(fd, noise.data(), noise.size()), 0);
    close(fd);
  }
  Create();
}

TEST_F(GrpcServerTest, StopsWhileCallsAreOpen) {
  const auto channel = Channel();
  v1::WatchJobRequest request;
  request.set_name("jobs/" + Create("anna"));
  const auto watch_context = As("anna"), reflection_context = As("anna"),
             health_context = As("anna");
  const auto watch = jobs_->WatchJob(watch_context.get(), request);
  v1::WatchJobResponse event;
  ASSERT_TRUE(watch->Read(&event));
  // Ask nothing more and do not end: they are ended.
  RawStream questions(channel, reflection_context.get(), kReflectionMethod);
  RawStream health(channel, health_context.get(), "/grpc.health.v1.Health/Watch");
  std::string answer;
  ASSERT_TRUE(questions.Write(kListServices));
  ASSERT_TRUE(questions.Read(&answer));
  ASSERT_TRUE(health.Write(""));
  ASSERT_TRUE(health.Read(&answer));

  server_->Stop(std::chrono::hours(1));
  while (watch->Read(&event)) {
  }
  EXPECT_EQ(CodeAndReason(watch->Finish()), "UNAVAILABLE STOPPING");
  EXPECT_EQ(questions.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  while (health.Read(&answer)) {
  }
  EXPECT_EQ(health.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(GrpcServerTest, WhoIsRefusedTakesNoStreamsPlace) {
  StopDaemon();
  options_.streams_max = 1;
  StartDaemon();
  v1::WatchJobRequest request;
  request.set_name("jobs/" + Create("anna"));
  for (int i = 0; i < 5; ++i) {
    const auto stranger = As("mallory");
    EXPECT_EQ(CodeAndReason(jobs_->WatchJob(stranger.get(), request)->Finish()),
              "UNAUTHENTICATED UNAUTHENTICATED_CALLER");
  }
  const auto annas = As("anna"), others = As("anna");
  const auto watch = jobs_->WatchJob(annas.get(), request);
  v1::WatchJobResponse event;
  ASSERT_TRUE(watch->Read(&event));
  EXPECT_EQ(CodeAndReason(jobs_->WatchJob(others.get(), request)->Finish()),
            "RESOURCE_EXHAUSTED LIMIT_REACHED");
  EXPECT_EQ(server_->streams(), 1u);
  EXPECT_TRUE(watch->Read(&event));
  annas->TryCancel();
  watch->Finish();
}

TEST_F(GrpcServerTest, CallersWhoGoAwayAreForgotten) {
  const std::string id = Create("anna");
  for (int i = 0; i < 20; ++i) {
    v1::WatchJobRequest request;
    request.set_name("jobs/" + id);
    const auto context = As("anna");
    const auto watch = jobs_->WatchJob(context.get(), request);
    v1::WatchJobResponse event;
    ASSERT_TRUE(watch->Read(&event));
    context->TryCancel();
    watch->Finish();
  }
  WaitUntil([this] { return server_->streams() == 0; });
}

TEST_F(GrpcServerTest, AddressesThatCannotBeListenedOnAreRefused) {
  const auto start = [this](const std::string& address) {
    GrpcServerOptions options;
    options.listen = {address};
    return ServeApi(options, &authenticator_, manager_.get(), records_.get(),
                    [this] { return node_; })
        .status();
  };
  EXPECT_EQ(start("127.0.0.1:0").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(start("unix:/nonexistent/m.sock").code(), absl::StatusCode::kUnavailable);
  Create();
}

TEST_F(GrpcServerTest, TheOwnerOfAPrivateSocketIsAdministrator) {
  GrpcServerOptions options;
  options.listen = {"unix:" + directory_.path() + "/own.sock"};
  const AccountCache accounts;
  CallerAuthenticator::Options access;
  access.accounts = &accounts;
  const CallerAuthenticator authenticator(access);
  auto server =
      ServeApi(options, &authenticator, manager_.get(), records_.get(), [this] { return node_; });
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string id = Create("anna");
  const auto stub = v1::JobService::NewStub(
      grpc::CreateChannel(options.listen[0], grpc::InsecureChannelCredentials()));
  v1::GetJobRequest request;
  request.set_name("jobs/" + id);
  v1::Job job;
  EXPECT_TRUE(stub->GetJob(As("").get(), request, &job).ok());
  v1::Job created;
  ASSERT_TRUE(stub->CreateJob(As("").get(), CreateRequest(), &created).ok());
  EXPECT_NE(created.user(), "");
  EXPECT_NE(created.user(), "anna");
}

}  // namespace
}  // namespace megatrain
