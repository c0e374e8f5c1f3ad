#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/client/commands/program_fixture.h"
#include "tests/client/commands/scripted_server.h"

namespace megatrain::client {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class LogsCommandTest : public ProgramTest {};

// Returns the error for a start that is beyond the end of a series.
grpc::Status BeyondTheEnd() {
  google::rpc::ErrorInfo info;
  info.set_domain("megatrain");
  info.set_reason("INVALID_FIELD");
  (*info.mutable_metadata())["field"] = "start_sequence";
  google::rpc::Status details;
  details.add_details()->PackFrom(info);
  return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "refused", details.SerializeAsString());
}

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

TEST_F(LogsCommandTest, RecordsAreALineEachOrEntriesOfOneList) {
  const std::string id = Create();
  AddLine(id, "loading");
  AddLine(id, "ready");
  const std::vector<std::string> lines = Lines(Run({"logs", id, "-o", "json"}).out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(nlohmann::json::parse(lines[0])["text"], "loading");
  EXPECT_EQ(nlohmann::json::parse(lines[1])["sequence"], 2);
  const std::string list = Run({"logs", id, "-o", "yaml"}).out;
  EXPECT_THAT(list, StartsWith("- sequence: 1\n  time: "));
  EXPECT_THAT(list, HasSubstr("\n  text: loading\n- sequence: 2\n"));
}

// As after a power cut that took the last lines of the log.
TEST_F(LogsCommandTest, ALogThatBecameShorterIsShownFromItsBeginning) {
  ScriptedServer server(directory_.path() + "/scripted.sock");
  std::atomic<int> calls{0};
  server.logs = [&](grpc::ServerContext*, grpc::ServerWriter<v1::StreamLogsResponse>* writer) {
    const int call = ++calls;
    if (call == 2) return BeyondTheEnd();
    v1::StreamLogsResponse response;
    v1::LogLine* const line = response.mutable_batch()->add_lines();
    line->set_sequence(call == 1 ? 9 : 1);
    line->set_text(call == 1 ? "step 9" : "loading");
    line->mutable_time()->set_seconds(61);
    writer->Write(response);
    return call == 1 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "stopping") : grpc::Status::OK;
  };
  variables_["MEGATRAIN_SERVER"] = server.address();
  const Result result = Run({"logs", "a1", "-f"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_EQ(result.out, "1970-01-01 00:01:01  step 9\n1970-01-01 00:01:01  loading\n");
  EXPECT_THAT(result.err, HasSubstr("the server lost lines that were shown; from the beginning:"));
}

}  // namespace
}  // namespace megatrain::client
