#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

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

}  // namespace
}  // namespace megatrain::client
