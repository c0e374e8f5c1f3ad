#include "client/connection/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <string>

#include "client/connection/cancellation.h"
#include "client/connection/rpc_error.h"
#include "client/connection/server_address.h"
#include "server/base/error_reason.h"
#include "tests/client/connection/token_socket.h"
#include "tests/server/api/service_fixture.h"

namespace megatrain::client {
namespace {

using ::testing::HasSubstr;

class ConnectionTest : public ServiceTest {
 protected:
  // Returns how often a call is made of which the server refuses the first two for `reason`.
  int CallsUntilDone(v1::ErrorReason reason) {
    authenticator_.nameless = "anna";
    std::atomic<int> calls{0};
    plan_ = [&](const JobSpec&) -> absl::StatusOr<PlanReport> {
      if (++calls < 3) return WithReason(absl::UnavailableError("not yet"), reason);
      PlanReport report;
      report.fits = true;
      return report;
    };
    Connection connection(*ParseServerAddress(options_.listen[0]));
    const auto job =
        connection.Call(connection.jobs(), &v1::JobService::Stub::CreateJob, CreateRequest());
    EXPECT_EQ(job.ok(), calls == 3) << job.status();
    return calls;
  }
};

TEST_F(ConnectionTest, ACallIsRepeatedWhileTheServerStartsOrHasTooMuchToDo) {
  EXPECT_EQ(CallsUntilDone(v1::STARTING), 3);
  EXPECT_EQ(CallsUntilDone(v1::OVERLOADED), 3);
  EXPECT_EQ(CallsUntilDone(v1::STOPPING), 1);
}

TEST_F(ConnectionTest, WhyThereIsNoToken) {
  Connection connection(*ParseServerAddress(options_.listen[0]));
  absl::Status status = connection.Authorization().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("its socket is private"));
  StopDaemon();
  status = connection.Authorization().status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  Connection far(*ParseServerAddress("node7:1"));
  status = far.Authorization().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("MEGATRAIN_TOKEN"));
}

TEST_F(ConnectionTest, WhoIsRefusedATokenIsToldWhy) {
  const TokenSocket tokens(options_.listen[0].substr(sizeof("unix:") - 1) + ".auth",
                           [](int) { return "{\"error\": \"no account of yours\"}"; });
  Connection connection(*ParseServerAddress(options_.listen[0]));
  const absl::Status status =
      connection.Call(connection.jobs(), &v1::JobService::Stub::CreateJob, CreateRequest())
          .status();
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  EXPECT_EQ(status.message(), "no account of yours");
  EXPECT_EQ(ReasonOf(status), "UNAUTHENTICATED_CALLER");
}

TEST_F(ConnectionTest, AnyPathOfASocketLeadsThere) {
  authenticator_.nameless = "anna";
  const std::string odd = directory_.path() + "/100%41 a?b#c [é].sock";
  std::filesystem::rename(options_.listen[0].substr(sizeof("unix:") - 1), odd);
  Connection connection(*ParseServerAddress("unix:" + odd));
  const auto job =
      connection.Call(connection.jobs(), &v1::JobService::Stub::CreateJob, CreateRequest());
  EXPECT_TRUE(job.ok()) << job.status();
}

TEST_F(ConnectionTest, ACallThatIsCancelledFirstIsNotMade) {
  Connection connection(*ParseServerAddress(options_.listen[0]));
  Cancellation cancellation;
  cancellation.Cancel();
  cancellation.Cancel();
  const absl::Status status = connection
                                  .Call(connection.jobs(), &v1::JobService::Stub::CreateJob,
                                        CreateRequest(), kCallTimeout, &cancellation)
                                  .status();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_EQ(authenticator_.asked, 0);
}

TEST_F(ConnectionTest, ErrorsThatNoServerMadeAreExplained) {
  Connection connection(*ParseServerAddress(options_.listen[0]));
  absl::Status status =
      connection.Explain(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded"));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the server did not answer in time"));
  status = connection.Explain(grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed"));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("Socket closed")) << "it is there again";
  for (const grpc::StatusCode code :
       {grpc::StatusCode::CANCELLED, grpc::StatusCode::UNKNOWN, grpc::StatusCode::INTERNAL}) {
    status = connection.Explain(grpc::Status(code, "RST_STREAM"));
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("the call was cut off: RST_STREAM"));
  }
  StopDaemon();
  status = connection.Explain(grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("megatraind serve"));
  EXPECT_TRUE(connection.Explain(grpc::Status::OK).ok());
}

}  // namespace
}  // namespace megatrain::client
