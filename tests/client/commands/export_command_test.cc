#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/client/commands/program_fixture.h"
#include "tests/client/commands/scripted_server.h"
#include "tests/client/connection/token_socket.h"

namespace megatrain::client {
namespace {

class ExportCommandTest : public ProgramTest {};

TEST_F(ExportCommandTest, WritesTheNewestCheckpointOrTheOneThatIsNamed) {
  const std::string id = Create();
  const std::string checkpoints = directory_.path() + "/state/jobs/" + id + "/checkpoints";
  for (const char* const step : {"/step-00000010", "/step-00000020"}) {
    std::filesystem::create_directories(checkpoints + step);
    std::ofstream(checkpoints + step + "/manifest.json") << "{}";
  }
  const std::string out = directory_.path() + "/out";
  Result result = Run({"export", id, "--out", out});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_EQ(result.out, absl::StrCat("the model after step 20 is in ", out, "\n"));
  EXPECT_EQ(engine_.Exported(), checkpoints + "/step-00000020 to " + out);
  const std::string named = absl::StrCat("jobs/", id, "/checkpoints/10");
  EXPECT_EQ(Json({"export", named, "--out", out})["step"], 10);
  EXPECT_EQ(engine_.Exported(), checkpoints + "/step-00000010 to " + out);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory_.path());
  EXPECT_EQ(Run({"export", id, "--out", "out", "-q"}).out, out + "\n");
  std::filesystem::current_path(before);
  engine_.AnswerExportsWith(absl::ResourceExhaustedError("no room"));
  result = Run({"export", id, "--out", out});
  EXPECT_EQ(result.code, kExitFailed);
  EXPECT_EQ(result.out, "");
}

TEST_F(ExportCommandTest, IsAskedForOnceMoreWithAnotherToken) {
  const std::string socket = directory_.path() + "/scripted.sock";
  const TokenSocket tokens(socket + ".auth");
  std::atomic<int> calls{0};
  std::atomic<int> refused{1};
  ScriptedServer server(socket);
  server.export_job = [&](grpc::ServerContext*, grpc::ServerWriter<v1::ExportJobResponse>* writer) {
    if (++calls <= refused) {
      return Refusal(grpc::StatusCode::UNAUTHENTICATED, "TOKEN_EXPIRED");
    }
    v1::ExportJobResponse response;
    response.mutable_exported()->set_directory("/out");
    response.mutable_exported()->set_step(7);
    writer->Write(response);
    return grpc::Status::OK;
  };
  variables_["MEGATRAIN_SERVER"] = server.address();
  const Result result = Run({"export", "a1", "--out", "/out"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_EQ(result.out, "the model after step 7 is in /out\n");
  EXPECT_EQ(calls, 2);
  calls = 0;
  refused = 2;
  EXPECT_EQ(Run({"export", "a1", "--out", "/out"}).code, kExitNotPermitted);
  EXPECT_EQ(calls, 2);
}

TEST_F(ExportCommandTest, WhatTheServersEndCutsOffWasNotLeftByTheUser) {
  ScriptedServer server(directory_.path() + "/scripted.sock");
  server.export_job = [](grpc::ServerContext*, grpc::ServerWriter<v1::ExportJobResponse>*) {
    return grpc::Status(grpc::StatusCode::CANCELLED, "CANCELLED");
  };
  variables_["MEGATRAIN_SERVER"] = server.address();
  EXPECT_EQ(Run({"export", "a1", "--out", "/out"}).code, kExitUnreachable);
}

}  // namespace
}  // namespace megatrain::client
