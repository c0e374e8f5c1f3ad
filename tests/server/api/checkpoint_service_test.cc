// Checkpoints over RPC: lists and exports.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/api/service_fixture.h"

namespace megatrain {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class CheckpointServiceTest : public ServiceTest {
 protected:
  grpc::Status Get(const std::string& user, const std::string& name, v1::Job* job) {
    v1::GetJobRequest request;
    request.set_name(name);
    return jobs_->GetJob(As(user).get(), request, job);
  }
};

TEST_F(CheckpointServiceTest, CheckpointsComeInPages) {
  const std::string id = Create(), other = Create();
  for (int step = 1; step <= 7; ++step) {
    const std::string directory =
        absl::StrCat(directory_.path(), "/state/jobs/", id, "/checkpoints/step-0000000", step);
    std::filesystem::create_directories(directory);
    std::ofstream(directory + "/manifest.json") << "{}";
  }
  v1::ListCheckpointsRequest request;
  request.set_parent("jobs/" + id);
  request.set_page_size(3);
  v1::ListCheckpointsResponse response;
  std::vector<int64_t> steps;
  do {
    ASSERT_EQ(CodeAndReason(jobs_->ListCheckpoints(As("anna").get(), request, &response)), "OK");
    EXPECT_LE(response.checkpoints_size(), 3);
    for (const v1::Checkpoint& each : response.checkpoints()) steps.push_back(each.step());
    request.set_page_token(response.next_page_token());
    if (steps.size() == 3) {
      v1::ListCheckpointsRequest wrong = request;
      wrong.set_parent("jobs/" + other);
      EXPECT_EQ(CodeAndReason(jobs_->ListCheckpoints(As("anna").get(), wrong, &response)),
                "INVALID_ARGUMENT INVALID_PAGE_TOKEN");
      wrong.set_parent("jobs/" + id);
      wrong.set_page_size(-1);
      EXPECT_EQ(CodeAndReason(jobs_->ListCheckpoints(As("anna").get(), wrong, &response)),
                "INVALID_ARGUMENT INVALID_FIELD");
    }
  } while (!request.page_token().empty());
  EXPECT_EQ(steps, (std::vector<int64_t>{7, 6, 5, 4, 3, 2, 1}));
  request.set_page_size(2000000000);
  ASSERT_TRUE(jobs_->ListCheckpoints(As("anna").get(), request, &response).ok());
  EXPECT_THAT(response.checkpoints(), SizeIs(7));
}

TEST_F(CheckpointServiceTest, APageHasFiftyUnlessMoreAreAskedForAndAtMostAThousand) {
  const std::string id = Create();
  for (int step = 1; step <= 1001; ++step) {
    const std::string directory =
        absl::StrCat(directory_.path(), "/state/jobs/", id, "/checkpoints/step-",
                     absl::Dec(step, absl::kZeroPad8));
    std::filesystem::create_directories(directory);
    std::ofstream(directory + "/manifest.json") << "{}";
  }
  v1::ListCheckpointsRequest request;
  request.set_parent("jobs/" + id);
  v1::ListCheckpointsResponse response;
  ASSERT_TRUE(jobs_->ListCheckpoints(As("anna").get(), request, &response).ok());
  EXPECT_THAT(response.checkpoints(), SizeIs(50));
  request.set_page_size(2000);
  ASSERT_TRUE(jobs_->ListCheckpoints(As("anna").get(), request, &response).ok());
  EXPECT_THAT(response.checkpoints(), SizeIs(1000));
  EXPECT_NE(response.next_page_token(), "");
}

TEST_F(CheckpointServiceTest, CheckpointsAreListedAndExported) {
  const std::string id = Create();
  v1::ListCheckpointsRequest request;
  request.set_parent("jobs/" + id);
  v1::ListCheckpointsResponse response;
  ASSERT_EQ(CodeAndReason(jobs_->ListCheckpoints(As("anna").get(), request, &response)), "OK");
  EXPECT_THAT(response.checkpoints(), IsEmpty());

  v1::Job job;
  ASSERT_TRUE(Get("anna", "jobs/" + id, &job).ok());
  const std::string directory = job.summary().checkpoint_directory();
  for (const char* step : {"step-00000010", "step-00000020"}) {
    std::filesystem::create_directories(directory + "/" + step);
    std::ofstream(directory + "/" + step + "/manifest.json") << "{}";
  }
  ASSERT_EQ(CodeAndReason(jobs_->ListCheckpoints(As("anna").get(), request, &response)), "OK");
  ASSERT_THAT(response.checkpoints(), SizeIs(2));
  EXPECT_EQ(response.checkpoints(0).name(), "jobs/" + id + "/checkpoints/20");
  EXPECT_EQ(response.checkpoints(0).step(), 20);

  const auto run_export = [&](const std::string& name, const std::string& out) {
    v1::ExportJobRequest request;
    request.set_name(name);
    request.set_directory(out);
    const auto context = As("anna");
    const auto reader = jobs_->ExportJob(context.get(), request);
    v1::ExportJobResponse message;
    int64_t step = 0;
    while (reader->Read(&message)) {
      if (message.has_exported()) step = message.exported().step();
    }
    const grpc::Status status = reader->Finish();
    return status.ok() ? absl::StrCat("step ", step) : CodeAndReason(status);
  };
  EXPECT_EQ(run_export("jobs/" + id, "/tmp/out"), "step 20");
  EXPECT_EQ(engine_.Exported(), directory + "/step-00000020 to /tmp/out");
  EXPECT_EQ(run_export("jobs/" + id + "/checkpoints/10", "/tmp/out"), "step 10");
  EXPECT_EQ(run_export("jobs/" + id + "/checkpoints/11", "/tmp/out"),
            "NOT_FOUND CHECKPOINT_NOT_FOUND");
  EXPECT_EQ(run_export("jobs/" + id, "out"), "INVALID_ARGUMENT INVALID_FIELD");
  EXPECT_EQ(run_export("jobs/" + id + "/checkpoints/x", "/o"), "INVALID_ARGUMENT INVALID_FIELD");
  engine_.AnswerExportsWith(absl::ResourceExhaustedError("no room"));
  EXPECT_EQ(run_export("jobs/" + id, "/tmp/out"), "RESOURCE_EXHAUSTED DISK_FULL");
  // As the queue ends what the daemon's end abandons.
  engine_.AnswerExportsWith(absl::CancelledError("the server ends"));
  EXPECT_EQ(run_export("jobs/" + id, "/tmp/out"), "UNAVAILABLE STOPPING");
}

TEST_F(CheckpointServiceTest, ALongExportHasHeartbeatsAndOutlivesItsCaller) {
  const std::string id = Create();
  v1::Job job;
  ASSERT_TRUE(Get("anna", "jobs/" + id, &job).ok());
  const std::string step = job.summary().checkpoint_directory() + "/step-00000010";
  std::filesystem::create_directories(step);
  std::ofstream(step + "/manifest.json") << "{}";
  engine_.HoldExports();
  v1::ExportJobRequest request;
  request.set_name("jobs/" + id);
  request.set_directory("/tmp/out");
  for (const bool leaves : {true, false}) {
    const auto context = As("anna");
    const auto reader = jobs_->ExportJob(context.get(), request);
    v1::ExportJobResponse message;
    ASSERT_TRUE(reader->Read(&message));
    EXPECT_TRUE(message.has_heartbeat());
    ASSERT_TRUE(reader->Read(&message));
    EXPECT_TRUE(message.has_heartbeat());
    if (leaves) {
      context->TryCancel();
      EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
      engine_.EndExport();
    } else {
      engine_.EndExport();
      while (reader->Read(&message)) {
      }
      EXPECT_TRUE(message.has_exported());
      EXPECT_TRUE(reader->Finish().ok());
    }
  }
}

}  // namespace
}  // namespace megatrain
