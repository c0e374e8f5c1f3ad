// The view of a job while single streams fail.
#include "client/watch/watch_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>

#include "tests/client/commands/program_fixture.h"
#include "tests/client/commands/scripted_server.h"
#include "tests/client/watch/watch_messages.h"

namespace megatrain::client {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

class WatchSessionTest : public ProgramTest {
 protected:
  std::string Socket() const { return directory_.path() + "/scripted.sock"; }
};

// The node's stream only adds a line to the picture.
TEST_F(WatchSessionTest, WithoutTheNodeTheLiveViewGoesOn) {
  std::atomic<bool> refused{false}, may_end{false};
  std::atomic<int> code{-1};
  Captured out, err;
  ScriptedServer server(Socket());
  server.watch_node = [&](grpc::ServerContext*, grpc::ServerWriter<v1::WatchNodeResponse>*) {
    refused = true;
    return Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, "LIMIT_REACHED");
  };
  server.watch_job = [&](grpc::ServerContext* context,
                         grpc::ServerWriter<v1::WatchJobResponse>* writer) {
    writer->Write(JobMessage(v1::Job::RUNNING));
    WaitUntil([&] { return refused || context->IsCancelled(); });
    writer->Write(JobMessage(v1::Job::PAUSED));
    WaitUntil([&] { return may_end || context->IsCancelled(); });
    writer->Write(JobMessage(v1::Job::SUCCEEDED));
    return grpc::Status::OK;
  };
  variables_["MEGATRAIN_SERVER"] = server.address();
  is_terminal_ = true;
  std::thread watch([&] { code = RunInto({"watch", "a1"}, &out, &err); });
  WaitUntil([&] { return code >= 0 || out.Text().find("PAUSED") != std::string::npos; });
  may_end = true;
  watch.join();
  std::fflush(err.file());
  EXPECT_EQ(code, kExitDone) << err.Text();
  EXPECT_THAT(out.Text(), HasSubstr("\ndemo has succeeded: jobs/a1\n"));
}

TEST_F(WatchSessionTest, ASizeThatChangesIsNoReasonToLeaveAndCtrlCIs) {
  std::atomic<bool> resized{false};
  std::atomic<int> code{-1};
  Captured out, err;
  ScriptedServer server(Socket());
  server.watch_job = [&](grpc::ServerContext* context,
                         grpc::ServerWriter<v1::WatchJobResponse>* writer) {
    writer->Write(JobMessage(v1::Job::RUNNING));
    WaitUntil([&] { return resized || context->IsCancelled(); });
    writer->Write(JobMessage(v1::Job::PAUSED));
    WaitUntil([&] { return context->IsCancelled(); });
    return grpc::Status::OK;
  };
  variables_["MEGATRAIN_SERVER"] = server.address();
  is_terminal_ = true;
  std::thread watch([&] { code = RunInto({"watch", "a1"}, &out, &err); });
  WaitUntil([&] { return code >= 0 || out.Text().find("RUNNING") != std::string::npos; });
  // The view's thread alone watches for signals.
  if (code < 0) pthread_kill(watch.native_handle(), SIGWINCH);
  resized = true;
  WaitUntil([&] { return code >= 0 || out.Text().find("PAUSED") != std::string::npos; });
  EXPECT_EQ(code, -1) << "the view goes on";
  if (code < 0) pthread_kill(watch.native_handle(), SIGINT);
  watch.join();
  EXPECT_EQ(code, kExitInterrupted);
  const std::string text = out.Text();
  EXPECT_THAT(text, HasSubstr("\033[?1049l")) << "the terminal is as it was";
  EXPECT_THAT(text, EndsWith("\ndemo is PAUSED and goes on: jobs/a1\n"));
}

TEST_F(WatchSessionTest, TheJobsMetricsAndItsLogEndTheViewWhereTheyFail) {
  for (const bool is_log : {false, true}) {
    std::atomic<bool> may_fail{false};
    Captured out, err;
    std::atomic<int> code{-1};
    const auto fail = [&](grpc::ServerContext* context) {
      WaitUntil([&] { return may_fail || context->IsCancelled(); });
      return Refusal(grpc::StatusCode::DATA_LOSS, "CORRUPT_DATA");
    };
    {
      ScriptedServer server(Socket() + (is_log ? ".log" : ".metrics"));
      server.watch_job = [&](grpc::ServerContext* context,
                             grpc::ServerWriter<v1::WatchJobResponse>* writer) {
        writer->Write(JobMessage(v1::Job::RUNNING));
        writer->Write(EventMessage(1, v1::Job::RUNNING, "started"));
        WaitUntil([&] { return context->IsCancelled(); });
        return grpc::Status::OK;
      };
      if (is_log) {
        server.logs = [&](grpc::ServerContext* context,
                          grpc::ServerWriter<v1::StreamLogsResponse>*) { return fail(context); };
      } else {
        server.metrics = [&](grpc::ServerContext* context,
                             grpc::ServerWriter<v1::StreamStepMetricsResponse>*) {
          return fail(context);
        };
      }
      variables_["MEGATRAIN_SERVER"] = server.address();
      std::thread watch([&] { code = RunInto({"watch", "a1"}, &out, &err); });
      WaitUntil([&] { return code >= 0 || out.Text().find("started") != std::string::npos; });
      may_fail = true;
      WaitUntil([&] { return code >= 0; });
      watch.join();
    }
    std::fflush(err.file());
    EXPECT_EQ(code, kExitFailed) << err.Text();
    EXPECT_THAT(err.Text(), AllOf(HasSubstr("refused"), HasSubstr("megatraind verify")));
    EXPECT_THAT(out.Text(), EndsWith("\ndemo is RUNNING and goes on: jobs/a1\n"));
  }
}

TEST_F(WatchSessionTest, AServerThatSendsNoJobIsFoundOut) {
  ScriptedServer server(Socket());
  variables_["MEGATRAIN_SERVER"] = server.address();
  const Result result = Run({"watch", "a1"});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_THAT(result.err, HasSubstr("the server sent no job"));
  EXPECT_EQ(result.out, "");
}

}  // namespace
}  // namespace megatrain::client
