#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/client/commands/program_fixture.h"
#include "tests/client/commands/scripted_server.h"
#include "tests/client/watch/watch_messages.h"

namespace megatrain::client {
namespace {

using ::testing::HasSubstr;

class WaitCommandTest : public ProgramTest {};

TEST_F(WaitCommandTest, PrintsTheEndedJobInTheFormThatIsAskedFor) {
  const std::string id = Create();
  MoveToRunning(id);
  Move(id, JobState::kSucceeded);
  EXPECT_EQ(Run({"wait", id, "-q"}).out, absl::StrCat("jobs/", id, "\n"));
  const nlohmann::json job = Json({"wait", id});
  EXPECT_EQ(job["state"], "SUCCEEDED");
  EXPECT_THAT(job["file"]["yaml"], HasSubstr("name: demo"));
  EXPECT_THAT(Run({"wait", id}).out, HasSubstr("demo has succeeded"));
}

// Only the first message of a stream has the file.
TEST_F(WaitCommandTest, PrintsTheFileOfAJobThatEndsWhileItWaits) {
  ScriptedServer server(directory_.path() + "/scripted.sock");
  server.watch_job = [](grpc::ServerContext*, grpc::ServerWriter<v1::WatchJobResponse>* writer) {
    v1::WatchJobResponse first = JobMessage(v1::Job::RUNNING);
    first.mutable_job()->mutable_file()->set_yaml("name: demo\n");
    writer->Write(first);
    writer->Write(JobMessage(v1::Job::SUCCEEDED));
    return grpc::Status::OK;
  };
  variables_["MEGATRAIN_SERVER"] = server.address();
  const nlohmann::json job = Json({"wait", "a1"});
  EXPECT_EQ(job["state"], "SUCCEEDED");
  EXPECT_EQ(job["file"]["yaml"], "name: demo\n");
}

TEST_F(WaitCommandTest, EachLossOfTheServerIsToldOnce) {
  ScriptedServer server(directory_.path() + "/scripted.sock");
  std::atomic<int> calls{0};
  server.watch_job = [&](grpc::ServerContext*, grpc::ServerWriter<v1::WatchJobResponse>* writer) {
    const int call = ++calls;
    if (call == 4) {
      writer->Write(JobMessage(v1::Job::SUCCEEDED));
      return grpc::Status::OK;
    }
    if (call != 2) writer->Write(JobMessage(v1::Job::RUNNING));
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "busy");
  };
  variables_["MEGATRAIN_SERVER"] = server.address();
  const Result result = Run({"wait", "a1"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_EQ(calls, 4);
  std::vector<std::string> notes;
  for (const std::string& line : Lines(result.err)) {
    EXPECT_THAT(line, HasSubstr("the server is away, waiting on: ")) << line;
    notes.push_back(line);
  }
  EXPECT_EQ(notes.size(), 2u) << "it came back once in between\n" << result.err;
}

}  // namespace
}  // namespace megatrain::client
