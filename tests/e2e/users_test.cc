// Several users of one daemon, as they meet it: `megatraind serve` on TCP with TLS, tokens and
// client certificates, and on a shared Unix socket, and `megatrain` with what each of them has.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "megatrain/v1/node_service.grpc.pb.h"
#include "tests/e2e/users_fixture.h"
#include "tests/server/identity/test_certificates.h"
#include "tests/support/child_process.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class TcpTest : public UsersTest {
 protected:
  void SetUp() override {
    UsersTest::SetUp();
    if (IsSkipped()) return;
    if (HasFatalFailure()) return;
    const TestCertificate server = authority_.Issue("server", "IP:127.0.0.1");
    ca_ = Write("ca.pem", authority_.certificate());
    tokens_ = directory_ / "tokens";
    annas_token_ = AddToken("daemon");
    bobs_token_ = AddToken("bin");
    address_ = StartDaemon({"listen=[\"127.0.0.1:0\"]",
                            "tls.certificate=" + Write("server.pem", server.certificate),
                            "tls.key=" + Write("server.key", server.key), "tls.client_ca=" + ca_,
                            "tokens_file=" + tokens_});
    ASSERT_THAT(address_, AllOf(StartsWith("127.0.0.1:"), Not(HasSubstr(":0"))));
    AddContext("anna", {"--ca", ca_, "--token-file", Write("anna.token", annas_token_ + "\n")});
    AddContext("bob", {"--ca", ca_, "--token-file", Write("bob.token", bobs_token_)});
  }
  // Two accounts that every Debian has stand for Anna and Bob.
  std::string AddToken(const std::string& account) {
    return DaemonCommand({"token", "add", account, "--tokens-file", tokens_});
  }
  void AddContext(const std::string& user, const std::vector<std::string>& options) {
    std::vector<std::string> arguments = {"context", "add", "far", address_};
    arguments.insert(arguments.end(), options.begin(), options.end());
    Output(user, arguments);
  }
  // The options of a client certificate.
  std::vector<std::string> CertificateOf(const TestAuthority& authority, const std::string& name,
                                         int days = 30) {
    const TestCertificate issued = authority.Issue(name, "", days);
    return {"--ca",          ca_,
            "--certificate", Write("client.pem", issued.certificate),
            "--key",         Write("client.key", issued.key)};
  }

  const TestAuthority authority_;
  std::string ca_, tokens_, annas_token_, bobs_token_, address_;
};

TEST_F(TcpTest, EachSeesTheirOwn) {
  const std::string job = Output("anna", {"submit", directory_ / "job.yaml", "-q"});
  const std::string name = job.substr(0, job.find('\n'));
  EXPECT_THAT(Output("anna", {"ls", "-q"}), HasSubstr(name));
  EXPECT_THAT(Output("anna", {"show", name}), HasSubstr("daemon"));

  EXPECT_EQ(Output("bob", {"ls", "--all", "-q"}), "");
  std::string output;
  for (const char* command : {"show", "watch", "logs", "metrics", "wait", "pause", "resume",
                              "cancel", "checkpoint", "checkpoints"}) {
    EXPECT_EQ(Run("bob", {command, name}, &output), kNotFound) << command << ": " << output;
    EXPECT_THAT(output, Not(HasSubstr("secret")));
  }
  WaitUntil([this] {
    return Output("bob", {"info", "-o", "json"}).find("\"running\": 1") != std::string::npos;
  });
  EXPECT_THAT(Output("bob", {"info", "-o", "json"}), Not(HasSubstr("secret")));

  // The daemon's own user is the administrator.
  const passwd* const own = getpwuid(geteuid());
  if (own != nullptr) {
    AddContext("own", CertificateOf(authority_, own->pw_name));
    EXPECT_THAT(Output("own", {"ls", "-q"}), HasSubstr(name));
    EXPECT_EQ(Run("own", {"cancel", name}), 0);
  }
}

TEST_F(TcpTest, WhoIsNotKnownIsToldWhatToDo) {
  std::string output;
  EXPECT_EQ(Run("nobody", {"--server", address_, "ls"}, &output), kUnreachable);
  EXPECT_THAT(output, HasSubstr("--ca F` or MEGATRAIN_CA"));

  setenv("MEGATRAIN_CA", ca_.c_str(), 1);
  EXPECT_EQ(Run("nobody", {"--server", address_, "ls"}, &output), kNotPermitted);
  EXPECT_THAT(output, AllOf(HasSubstr("carries no token"), HasSubstr("administrator")));

  setenv("MEGATRAIN_TOKEN", annas_token_.c_str(), 1);
  EXPECT_EQ(Run("nobody", {"--server", address_, "ls"}, &output), 0) << output;
  EXPECT_EQ(Output("nobody", {"--server", address_, "token"}), "Bearer " + annas_token_ + "\n");
  const std::string forged = annas_token_.substr(0, annas_token_.size() - 4) + "0000";
  setenv("MEGATRAIN_TOKEN", forged.c_str(), 1);
  EXPECT_EQ(Run("nobody", {"--server", address_, "ls"}, &output), kNotPermitted);
  EXPECT_EQ(Run("nobody", {"--server", address_, "watch", "jobs/x"}, &output), kNotPermitted);
  unsetenv("MEGATRAIN_TOKEN");
  unsetenv("MEGATRAIN_CA");

  const std::string job = Output("anna", {"submit", directory_ / "job.yaml", "-q"});
  setenv("XDG_CONFIG_HOME", (directory_ / "anna").c_str(), 1);
  ChildProcess watch({client_binary_, "watch", job.substr(0, job.find('\n'))},
                     directory_ / "watch.log");
  WaitUntil([&] { return watch.Output().find("step") != std::string::npos; });
  const std::string id = annas_token_.substr(3, annas_token_.rfind('_') - 3);
  DaemonCommand({"token", "revoke", id, "--tokens-file", tokens_});
  WaitUntil([&] { return Run("anna", {"ls"}, &output) == kNotPermitted; });
  EXPECT_THAT(output, HasSubstr("revoked"));
  EXPECT_EQ(Run("bob", {"ls"}), 0);
  EXPECT_EQ(watch.Wait(), kNotPermitted) << watch.Output();
}

TEST_F(TcpTest, CertificatesThatDoNotHold) {
  std::string output;
  AddContext("stranger", CertificateOf(authority_, "no-such-user-here"));
  EXPECT_EQ(Run("stranger", {"ls"}, &output), kNotPermitted);
  EXPECT_THAT(output, HasSubstr("no account no-such-user-here"));

  AddContext("late", CertificateOf(authority_, "daemon", -1));
  EXPECT_EQ(Run("late", {"ls"}, &output), kUnreachable);
  EXPECT_THAT(output, HasSubstr("may have refused the client certificate"));

  AddContext("forger", CertificateOf(TestAuthority("another authority"), "daemon"));
  EXPECT_EQ(Run("forger", {"ls"}, &output), kUnreachable);
  EXPECT_THAT(output, HasSubstr("may have refused the client certificate"));

  AddContext("good", CertificateOf(authority_, "daemon"));
  EXPECT_EQ(Run("good", {"ls"}, &output), 0) << output;
}

TEST_F(TcpTest, NothingIsServedInClear) {
  const auto stub =
      v1::NodeService::NewStub(grpc::CreateChannel(address_, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  v1::GetNodeRequest request;
  request.set_name("nodes/local");
  v1::Node node;
  EXPECT_EQ(stub->GetNode(&context, request, &node).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Run("bob", {"ls"}), 0) << "and the daemon goes on";
}

class SharedSocketTest : public UsersTest {
 protected:
  void SetUp() override {
    UsersTest::SetUp();
    if (IsSkipped()) return;
    if (getpwuid(geteuid()) == nullptr) GTEST_SKIP() << "this user has no account";
    fs::create_directory(directory_ / "run");
    ASSERT_EQ(chmod((directory_ / "run").c_str(), 0755), 0);
    StartShared();
  }
  std::string Socket() const { return (directory_ / "run/m.sock").string(); }
  void StartShared() { StartDaemon({"listen=[\"unix:" + Socket() + "\"]"}); }
};

TEST_F(SharedSocketTest, TheClientProvesItselfByItself) {
  struct stat info = {};
  for (const std::string& path : {Socket(), Socket() + ".auth"}) {
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0660u) << path;
  }
  EXPECT_EQ(Run("own", {"--server", "unix:" + Socket(), "ls"}), 0);
  EXPECT_THAT(Output("own", {"--server", "unix:" + Socket(), "token"}), StartsWith("Bearer mtl_"));
  // Without a token nobody is known.
  const auto stub = v1::NodeService::NewStub(
      grpc::CreateChannel("unix:" + Socket(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::GetNodeRequest request;
  request.set_name("nodes/local");
  v1::Node node;
  EXPECT_EQ(stub->GetNode(&context, request, &node).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

TEST_F(SharedSocketTest, AViewOutlivesTheDaemonAndItsTokens) {
  const std::string job =
      Output("own", {"--server", "unix:" + Socket(), "submit", directory_ / "job.yaml", "-q"});
  const std::string name = job.substr(0, job.find('\n'));
  ChildProcess watch({client_binary_, "--server", "unix:" + Socket(), "watch", name},
                     directory_ / "watch.log");
  WaitUntil([&] { return watch.Output().find("step") != std::string::npos; });
  daemon_->Signal(SIGKILL);
  daemon_->Wait();
  StartShared();
  EXPECT_EQ(Run("own", {"--server", "unix:" + Socket(), "cancel", name}), 0);
  EXPECT_EQ(watch.Wait(), 1) << watch.Output();
  EXPECT_THAT(watch.Output(), Not(HasSubstr("the token")));
}

TEST_F(SharedSocketTest, AnotherUserIsAnother) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  if (access("/usr/bin/setpriv", X_OK) != 0) GTEST_SKIP() << "setpriv is missing";
  struct stat info = {};
  ASSERT_EQ(stat(Socket().c_str(), &info), 0);
  const std::string group = std::to_string(info.st_gid);
  const std::string job =
      Output("own", {"--server", "unix:" + Socket(), "submit", directory_ / "job.yaml", "-q"});
  const std::string name = job.substr(0, job.find('\n'));
  const auto as_other = [&](std::vector<std::string> arguments, std::string* output) {
    arguments.insert(arguments.begin(),
                     {"/usr/bin/setpriv", "--reuid=nobody", "--regid=" + group, "--clear-groups",
                      client_binary_, "--server", "unix:" + Socket()});
    ChildProcess client(arguments, directory_ / "other.log");
    const int code = client.Wait();
    *output = client.Output();
    return code;
  };
  std::string output;
  EXPECT_EQ(as_other({"ls", "--all", "-q"}, &output), 0) << output;
  EXPECT_EQ(output, "");
  EXPECT_EQ(as_other({"show", name}, &output), kNotFound) << output;
  EXPECT_EQ(as_other({"cancel", name}, &output), kNotFound) << output;
  EXPECT_EQ(Run("own", {"--server", "unix:" + Socket(), "show", name}), 0);
}

}  // namespace
}  // namespace megatrain
