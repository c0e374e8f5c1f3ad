#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/client/commands/program_fixture.h"
#include "tests/client/commands/scripted_server.h"

namespace megatrain::client {
namespace {

using ::testing::HasSubstr;

class LogsCommandTest : public ProgramTest {};

TEST_F(LogsCommandTest, LinesHaveTheirTimesAndMissingOnesAreTold) {
  ScriptedServer server(directory_.path() + "/scripted.sock");
  server.logs = [](grpc::ServerContext*, grpc::ServerWriter<v1::StreamLogsResponse>* writer) {
    v1::StreamLogsResponse response;
    response.mutable_missed()->set_first_sequence(1);
    response.mutable_missed()->set_last_sequence(8);
    writer->Write(response);
    v1::LogLine* const line = response.mutable_batch()->add_lines();
    line->set_sequence(9);
    line->set_text("loading");
    line->mutable_time()->set_seconds(61);
    writer->Write(response);
    return grpc::Status::OK;
  };
  variables_["MEGATRAIN_SERVER"] = server.address();
  const Result result = Run({"logs", "a1"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_EQ(result.out, "1970-01-01 00:01:01  loading\n");
  EXPECT_THAT(result.err, HasSubstr("lines 1 to 8 are no longer kept"));
}

}  // namespace
}  // namespace megatrain::client
