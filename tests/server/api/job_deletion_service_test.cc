// DeleteJob, and the streams of jobs that are deleted under their readers.
#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "server/api/job_streams.h"
#include "server/manager/job_remover.h"
#include "tests/server/api/service_fixture.h"

namespace megatrain {
namespace {

using ::testing::IsEmpty;

class JobDeletionServiceTest : public ServiceTest {
 protected:
  std::string Delete(const std::string& user, const std::string& name) {
    v1::DeleteJobRequest request;
    request.set_name(name);
    google::protobuf::Empty nothing;
    return CodeAndReason(jobs_->DeleteJob(As(user).get(), request, &nothing));
  }
  void RemoveFiles() { JobRemover(ledger_.get(), records_.get(), {}).RunRound(); }
};

TEST_F(JobDeletionServiceTest, ADeletedJobIsNotFound) {
  const std::string id = Create("anna");
  const std::string name = "jobs/" + id;
  EXPECT_EQ(Delete("anna", name), "FAILED_PRECONDITION ILLEGAL_TRANSITION");
  Move(id, JobState::kCancelled);
  EXPECT_EQ(Delete("", name), "UNAUTHENTICATED UNAUTHENTICATED_CALLER");
  EXPECT_EQ(Delete("bob", name), "NOT_FOUND JOB_NOT_FOUND");
  EXPECT_EQ(Delete("anna", "jobs/nosuchjob"), "NOT_FOUND JOB_NOT_FOUND");
  EXPECT_EQ(Delete("anna", id), "INVALID_ARGUMENT INVALID_FIELD");
  EXPECT_EQ(Delete("anna", name + "/checkpoints/1"), "INVALID_ARGUMENT INVALID_FIELD");
  EXPECT_EQ(Delete("anna", name), "OK");
  EXPECT_EQ(Delete("anna", name), "NOT_FOUND JOB_NOT_FOUND");
  v1::ListJobsResponse list;
  ASSERT_TRUE(jobs_->ListJobs(As("root").get(), {}, &list).ok());
  EXPECT_THAT(list.jobs(), IsEmpty());
  StopDaemon();
  StartDaemon();
  EXPECT_EQ(Delete("root", name), "NOT_FOUND JOB_NOT_FOUND");
  RemoveFiles();
  EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/state/jobs/" + id));
}

TEST_F(JobDeletionServiceTest, AWatchEndsWithTheJob) {
  const std::string id = Create("anna");
  auto watch = manager_->Watch({1000, "anna", false}, id, 1, [] {});
  ASSERT_TRUE(watch.ok());
  const auto source = NewWatchSource(id, *std::move(watch), 1, v1::JOB_VIEW_BASIC);
  v1::WatchJobResponse message;
  EXPECT_EQ(*source->Next(&message), StreamNext::kMessage);
  Move(id, JobState::kCancelled);
  ASSERT_EQ(Delete("anna", "jobs/" + id), "OK");
  absl::StatusOr<StreamNext> next = source->Next(&message);
  while (next.ok()) next = source->Next(&message);
  EXPECT_TRUE(absl::IsNotFound(next.status())) << next.status();
}

TEST_F(JobDeletionServiceTest, AReaderThatIsBehindIsToldThatTheJobIsGone) {
  const std::string id = Create("anna");
  // More than is on its way to a reader at any time.
  for (int i = 0; i < 120; ++i) AddLine(id, std::string(100000, 'x'));
  Move(id, JobState::kCancelled);
  v1::StreamLogsRequest request;
  request.set_name("jobs/" + id);
  for (const bool follow : {false, true}) {
    request.set_follow(follow);
    const auto context = As("anna");
    const auto reader = jobs_->StreamLogs(context.get(), request);
    v1::StreamLogsResponse message;
    ASSERT_TRUE(reader->Read(&message));
    if (follow) {
      ASSERT_EQ(Delete("anna", request.name()), "OK");
      RemoveFiles();
    }
    while (reader->Read(&message)) {
    }
    EXPECT_EQ(CodeAndReason(reader->Finish()), follow ? "NOT_FOUND JOB_NOT_FOUND" : "OK");
  }
  const auto context = As("anna");
  const auto reader = jobs_->StreamLogs(context.get(), request);
  v1::StreamLogsResponse message;
  EXPECT_FALSE(reader->Read(&message));
  EXPECT_EQ(CodeAndReason(reader->Finish()), "NOT_FOUND JOB_NOT_FOUND");
  EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/state/jobs/" + id));
}

}  // namespace
}  // namespace megatrain
