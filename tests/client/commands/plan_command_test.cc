#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/client/commands/program_fixture.h"
#include "tests/client/commands/scripted_server.h"

namespace megatrain::client {
namespace {

class PlanCommandTest : public ProgramTest {};

TEST_F(PlanCommandTest, PrintsTheTableAndTheQueue) {
  Create();
  const Result result = Run({"plan", JobFile()});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_EQ(result.out, "all fits\njobs ahead of it in the queue: 1\n");
  EXPECT_EQ(Json({"plan", JobFile()})["plan"]["host_limit_bytes"], 3);
}

// A limit that other jobs of the user reach says nothing of this one.
TEST_F(PlanCommandTest, AJobBeyondItsUsersLimitDoesNotFit) {
  for (const v1::ErrorReason reason : {v1::LIMIT_REACHED, v1::EXCEEDS_USER_LIMIT}) {
    ScriptedServer server(directory_.path() + "/scripted.sock");
    server.plan_job = [reason](v1::PlanJobResponse* response) {
      response->mutable_plan()->set_fits(true);
      response->mutable_plan()->set_table("all\033[2K\nfits");
      response->mutable_user_limit()->set_reason(reason);
      response->mutable_user_limit()->set_message("too many");
      return grpc::Status::OK;
    };
    variables_["MEGATRAIN_SERVER"] = server.address();
    const Result result = Run({"plan", JobFile()});
    EXPECT_EQ(result.code, reason == v1::LIMIT_REACHED ? kExitDone : kExitDoesNotFit) << result.err;
    EXPECT_EQ(result.out,
              "all?[2K\nfits\njobs ahead of it in the queue: 0\n"
              "a submit would be refused now: too many\n");
  }
}

}  // namespace
}  // namespace megatrain::client
