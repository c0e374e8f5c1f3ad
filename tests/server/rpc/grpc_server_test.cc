// What gRPC itself serves beside the API, spoken to in raw bytes: health, reflection, nonsense.
#include "server/rpc/grpc_server.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "server/rpc/caller_authenticator.h"
#include "tests/server/rpc/raw_call.h"
#include "tests/server/rpc/service_fixture.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

class GrpcServerTest : public ServiceTest {
 protected:
  grpc::Status Call(const std::string& method, const std::string& request, std::string* response) {
    return RawCall(Channel(), As("anna").get(), method, request, response);
  }

  // grpc.health.v1: field 1 of the response is the status, 1 = SERVING, 2 = NOT_SERVING.
  std::string Health(const std::string& service) {
    std::string request, response;
    if (!service.empty()) {
      request = "\x0A" + std::string(1, static_cast<char>(service.size())) + service;
    }
    const grpc::Status status = Call("/grpc.health.v1.Health/Check", request, &response);
    if (!status.ok()) return "error";
    return response == "\x08\x01" ? "SERVING" : response == "\x08\x02" ? "NOT_SERVING" : "?";
  }
};

TEST_F(GrpcServerTest, HealthSaysWhichServiceServesAndWhetherJobsCanRun) {
  EXPECT_EQ(Health("megatrain.v1.JobService"), "SERVING");
  EXPECT_EQ(Health("megatrain.v1.NodeService"), "SERVING");
  EXPECT_EQ(Health(""), "NOT_SERVING");
  server_->SetReady(true);
  EXPECT_EQ(Health(""), "SERVING");
  server_->SetReady(false);
  EXPECT_EQ(Health(""), "NOT_SERVING");
  EXPECT_EQ(Health("no.such.Service"), "error");
}

TEST_F(GrpcServerTest, ReflectionListsTheServices) {
  std::string response;
  ASSERT_TRUE(Call(kReflectionMethod, kListServices, &response).ok());
  EXPECT_THAT(response, HasSubstr("megatrain.v1.JobService"));
  EXPECT_THAT(response, HasSubstr("megatrain.v1.NodeService"));
  EXPECT_THAT(response, HasSubstr("grpc.health.v1.Health"));
}

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

TEST_F(GrpcServerTest, AddressesThatCannotBeListenedOnAreRefused) {
  const auto start = [this](const std::string& address) {
    GrpcServerOptions options;
    options.listen = {address};
    return GrpcServer::Start(options, &authenticator_, manager_.get(), records_.get(),
                             [this] { return node_; })
        .status();
  };
  EXPECT_EQ(start("127.0.0.1:0").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(start("unix:/nonexistent/m.sock").code(), absl::StatusCode::kInvalidArgument);
  Create();
}

TEST_F(GrpcServerTest, TheOwnerOfAPrivateSocketIsAdministrator) {
  GrpcServerOptions options;
  options.listen = {"unix:" + directory_.path() + "/own.sock"};
  const AccountCache accounts;
  CallerAuthenticator::Options access;
  access.accounts = &accounts;
  const CallerAuthenticator authenticator(access);
  auto server = GrpcServer::Start(options, &authenticator, manager_.get(), records_.get(),
                                  [this] { return node_; });
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
