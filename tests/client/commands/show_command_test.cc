#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/client/commands/program_fixture.h"
#include "tests/client/commands/scripted_server.h"
#include "tests/client/watch/watch_messages.h"

namespace megatrain::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ShowCommandTest : public ProgramTest {};

TEST_F(ShowCommandTest, SaysWhatAJobIsAndWhereItStands) {
  v1::CreateJobRequest request = CreateRequest();
  request.mutable_job()->set_priority(-5);
  request.mutable_job()->add_allow_change("optimizer");
  v1::Job job;
  ASSERT_EQ(CodeAndReason(jobs_->CreateJob(As("anna").get(), request, &job)), "OK");
  const std::string id = job.name().substr(std::string("jobs/").size());
  EXPECT_THAT(
      Run({"show", id}).out,
      AllOf(HasSubstr("user         anna\n"), HasSubstr("state        QUEUED\n"),
            HasSubstr("attempts     0\n"), HasSubstr("priority     -5\n"),
            HasSubstr("may change   optimizer\n"), HasSubstr("\nsubmitted    2"),
            HasSubstr(absl::StrCat("batch        ", job.summary().global_batch(),
                                   " sequences of 1024 tokens\n")),
            HasSubstr(absl::StrCat("\nmodel        ", directory_.path(), "/model\n")),
            HasSubstr(absl::StrCat("precision    ", job.summary().precision(), "\n")),
            HasSubstr(absl::StrCat("checkpoints  ", job.summary().checkpoint_directory(), "\n")),
            Not(HasSubstr("\noutput ")), Not(HasSubstr("\nstep ")), Not(HasSubstr("\ncheckpoint ")),
            Not(HasSubstr("\nloss ")), Not(HasSubstr("\nstarted ")), Not(HasSubstr("\nended "))));

  const auto prepared =
      ledger_->Change(id, [](const Job&) -> absl::StatusOr<std::optional<JobChange>> {
        JobChange change;
        change.to = JobState::kPreparing;
        change.edit = [](Job* edited) {
          edited->attempts = 3;
          edited->total_steps = 100;
          edited->checkpoint_step = 2;
          edited->pool_bytes = int64_t{3} << 30;
          edited->devices = {"cuda:0", "cuda:1"};
        };
        return change;
      });
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  Move(id, JobState::kRunning);
  AddStep(id, 3);
  EXPECT_THAT(Run({"show", id}).out,
              AllOf(HasSubstr("step         3 of 100\n"), HasSubstr("checkpoint   of step 2\n"),
                    HasSubstr("loss         0.3333\n"), HasSubstr("\nstarted      2"),
                    HasSubstr("attempts     3\n"), HasSubstr("devices      cuda:0, cuda:1\n"),
                    HasSubstr("host memory  3.0 GiB\n"), Not(HasSubstr("\nwhy ")),
                    Not(HasSubstr("\nended "))));

  Move(id, JobState::kFailed);
  EXPECT_THAT(Run({"show", id}).out,
              AllOf(HasSubstr("why          by the test\n"), HasSubstr("\nended        2"),
                    Not(HasSubstr("\ndevices "))));
  EXPECT_EQ(Run({"show", id, "-q"}).out, absl::StrCat("jobs/", id, "\n"));
}

TEST_F(ShowCommandTest, DoesNotWaitForEverForAServerThatHangs) {
  std::atomic<bool> is_limited{false};
  ScriptedServer server(directory_.path() + "/scripted.sock");
  server.watch_job = [&](grpc::ServerContext* context,
                         grpc::ServerWriter<v1::WatchJobResponse>* writer) {
    is_limited = context->deadline() < std::chrono::system_clock::now() + std::chrono::minutes(1);
    writer->Write(JobMessage(v1::Job::RUNNING));
    v1::WatchJobResponse heartbeat;
    heartbeat.mutable_heartbeat();
    writer->Write(heartbeat);
    return grpc::Status::OK;
  };
  variables_["MEGATRAIN_SERVER"] = server.address();
  const Result result = Run({"show", "a1"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_THAT(result.out, HasSubstr("job          jobs/a1\n"));
  EXPECT_TRUE(is_limited);
}

TEST_F(ShowCommandTest, HalfAnAnswerIsNotShown) {
  ScriptedServer server(directory_.path() + "/scripted.sock");
  server.watch_job = [](grpc::ServerContext*, grpc::ServerWriter<v1::WatchJobResponse>* writer) {
    writer->Write(JobMessage(v1::Job::RUNNING));
    return grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded");
  };
  variables_["MEGATRAIN_SERVER"] = server.address();
  const Result result = Run({"show", "a1"});
  EXPECT_EQ(result.code, kExitUnreachable);
  EXPECT_THAT(result.err, HasSubstr("the server did not answer in time"));
  EXPECT_EQ(result.out, "");
}

}  // namespace
}  // namespace megatrain::client
