// The gRPC server on TCP: certificates that are renewed while it serves, and what strangers may
// ask.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "engine/base/mutex.h"
#include "server/identity/tls_credentials.h"
#include "server/identity/tls_file_watch.h"
#include "tests/server/api/service_fixture.h"
#include "tests/server/identity/test_certificates.h"
#include "tests/server/transport/raw_call.h"

namespace megatrain {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class TlsServerTest : public ServiceTest {
 protected:
  void SetUp() override {
    ServiceTest::SetUp();
    StopDaemon();
    Renew(authority_);
    TlsFileWatch::Options options;
    options.now = [this] {
      MutexLock lock(&mutex_);
      return now_;
    };
    auto watch = TlsFileWatch::Open(
        {directory_.path() + "/server.pem", directory_.path() + "/server.key", ""}, options);
    ASSERT_TRUE(watch.ok()) << watch.status();
    watch_ = *std::move(watch);
    options_.listen = {"unix:" + directory_.path() + "/m.sock", "127.0.0.1:0", "127.0.0.1:0"};
    options_.tcp_credentials = [this] { return MakeTlsCredentials(watch_.get()); };
    StartDaemon();
  }
  void TearDown() override { StopDaemon(); }

  void Write(const std::string& name, const std::string& text) {
    const std::string path = directory_.path() + "/" + name;
    std::ofstream(path + ".new") << text;
    ASSERT_EQ(chmod((path + ".new").c_str(), 0600), 0);
    ASSERT_EQ(std::rename((path + ".new").c_str(), path.c_str()), 0);
  }
  void Renew(const TestAuthority& authority) {
    const TestCertificate server = authority.Issue("server", "IP:127.0.0.1");
    Write("server.pem", server.certificate);
    Write("server.key", server.key);
    MutexLock lock(&mutex_);
    now_ += TlsFileWatch::kLookInterval;
  }
  // A new connection of a client that trusts `authority`.
  std::shared_ptr<grpc::Channel> Connect(const TestAuthority& authority, size_t listener = 1) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = authority.certificate();
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(server_->listening()[listener], grpc::SslCredentials(options),
                                     arguments);
  }
  grpc::StatusCode Ask(const std::shared_ptr<grpc::Channel>& channel) {
    v1::GetNodeRequest request;
    v1::Node node;
    request.set_name("nodes/local");
    return v1::NodeService::NewStub(channel)
        ->GetNode(As("anna").get(), request, &node)
        .error_code();
  }

  const TestAuthority authority_, next_authority_{"the next authority"};
  Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_) = absl::Now();
  std::unique_ptr<TlsFileWatch> watch_;
};

TEST_F(TlsServerTest, ARenewedCertificateIsServedOnEveryListener) {
  const auto before = Connect(authority_);
  EXPECT_EQ(Ask(before), grpc::StatusCode::OK);
  EXPECT_EQ(Ask(Connect(next_authority_)), grpc::StatusCode::UNAVAILABLE);
  Renew(next_authority_);
  for (const size_t listener : {1, 2}) {
    EXPECT_EQ(Ask(Connect(next_authority_, listener)), grpc::StatusCode::OK);
    EXPECT_EQ(Ask(Connect(authority_, listener)), grpc::StatusCode::UNAVAILABLE);
  }
  EXPECT_EQ(Ask(before), grpc::StatusCode::OK) << "who is connected stays so";
}

TEST_F(TlsServerTest, ABrokenRenewalIsNotServed) {
  EXPECT_EQ(Ask(Connect(authority_)), grpc::StatusCode::OK);
  const TestCertificate other = next_authority_.Issue("server", "IP:127.0.0.1");
  Write("server.pem", other.certificate);  // the key is not there yet
  {
    MutexLock lock(&mutex_);
    now_ += TlsFileWatch::kLookInterval;
  }
  EXPECT_EQ(Ask(Connect(authority_)), grpc::StatusCode::OK);
  Write("server.key", other.key);
  {
    MutexLock lock(&mutex_);
    now_ += TlsFileWatch::kLookInterval;
  }
  EXPECT_EQ(Ask(Connect(next_authority_)), grpc::StatusCode::OK);
}

TEST_F(TlsServerTest, StrangersMayAskForHealthAndNotForReflection) {
  const auto far = Connect(authority_);
  const auto near = grpc::CreateChannel(options_.listen[0], grpc::InsecureChannelCredentials());
  std::string response;
  EXPECT_TRUE(RawCall(far, As("").get(), "/grpc.health.v1.Health/Check", "", &response).ok());
  for (const char* user : {"", "mallory"}) {
    response.clear();
    const grpc::Status status =
        RawCall(far, As(user).get(), kReflectionMethod, kListServices, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED) << status.error_message();
    EXPECT_EQ(response, "");
  }
  EXPECT_TRUE(RawCall(far, As("anna").get(), kReflectionMethod, kListServices, &response).ok());
  EXPECT_THAT(response, HasSubstr("megatrain.v1.JobService"));
  response.clear();
  EXPECT_TRUE(RawCall(near, As("").get(), kReflectionMethod, kListServices, &response).ok());
  EXPECT_THAT(response, HasSubstr("megatrain.v1.JobService"));
}

class ObservedServerTest : public ServiceTest {
 protected:
  std::vector<std::string> Seen() {
    MutexLock lock(&mutex_);
    return seen_;
  }
  Mutex mutex_;
  std::vector<std::string> seen_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(ObservedServerTest, WhoIsNotLetInIsTold) {
  StopDaemon();
  options_.refusal_observer = [this](const Refusal& refusal) {
    MutexLock lock(&mutex_);
    EXPECT_EQ(refusal.kind, Refusal::Kind::kCaller);
    seen_.push_back(refusal.reason + " " + refusal.peer + " " + refusal.message);
  };
  StartDaemon();
  const auto jobs = v1::JobService::NewStub(Channel());
  v1::ListJobsResponse list;
  EXPECT_TRUE(jobs->ListJobs(As("anna").get(), {}, &list).ok());
  EXPECT_THAT(Seen(), IsEmpty());
  EXPECT_FALSE(jobs->ListJobs(As("mallory").get(), {}, &list).ok());
  EXPECT_FALSE(jobs->ListJobs(As("").get(), {}, &list).ok());
  EXPECT_THAT(Seen(), SizeIs(2));
  EXPECT_THAT(Seen(), Each(HasSubstr("unix:")));
  EXPECT_THAT(Seen(), Each(HasSubstr("who are you?")));
}

}  // namespace
}  // namespace megatrain
