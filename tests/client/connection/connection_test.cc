#include "client/connection/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "client/connection/server_address.h"
#include "server/base/error_reason.h"
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
}

}  // namespace
}  // namespace megatrain::client
