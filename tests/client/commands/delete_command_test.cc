#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/client/commands/program_fixture.h"

namespace megatrain::client {
namespace {

using ::testing::HasSubstr;

class DeleteCommandTest : public ProgramTest {
 protected:
  std::string Cancelled() {
    const std::string id = Create();
    Move(id, JobState::kCancelled);
    return id;
  }
  bool IsThere(const std::string& id) { return Run({"show", id}).code == kExitDone; }
};

TEST_F(DeleteCommandTest, AsksAndSaysWhatIsLost) {
  const std::string id = Cancelled();
  const std::string step = directory_.path() + "/state/jobs/" + id + "/checkpoints/step-00000010";
  std::filesystem::create_directories(step);
  std::ofstream(step + "/manifest.json") << std::string(2048, ' ');
  std::filesystem::create_directories(step + "/../step-00000020");
  std::ofstream(step + "/../step-00000020/manifest.json") << std::string(1024, ' ');
  std::string asked, answer;
  ask_ = [&](const std::string& question) {
    asked = question;
    return answer;
  };
  for (const char* no : {"", "n", "no", "j", "yess"}) {
    answer = no;
    const Result result = Run({"delete", id});
    EXPECT_EQ(result.code, kExitInterrupted) << no;
    EXPECT_THAT(result.err, HasSubstr("left as it is"));
    EXPECT_TRUE(IsThere(id));
  }
  EXPECT_THAT(asked, HasSubstr("Delete jobs/" + id + " (demo, CANCELLED)"));
  EXPECT_THAT(asked, HasSubstr("and 2 checkpoints (3.0 KiB)"));
  answer = " Yes ";
  const Result result = Run({"delete", "jobs/" + id});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_EQ(result.out, "jobs/" + id + " is deleted\n");
  EXPECT_FALSE(IsThere(id));
  EXPECT_EQ(Run({"delete", id}).code, kExitNotFound);
}

// An ended job with a checkpoint in a directory that its file names.
TEST_F(DeleteCommandTest, DirectoriesOfTheUserStay) {
  // A terminal would obey control characters, and could show another question.
  const std::pair<std::string, std::string> names[] = {{"mine", "mine"},
                                                       {"mine\033[2K", "mine?[2K"}};
  for (const auto& [name, shown] : names) {
    const std::string mine = directory_.path() + "/" + name;
    std::filesystem::create_directories(mine + "/step-00000010");
    std::ofstream(mine + "/step-00000010/manifest.json") << "{}";
    v1::CreateJobRequest request = CreateRequest();
    v1::JobFile* const file = request.mutable_job()->mutable_file();
    file->set_yaml(absl::StrCat(file->yaml(), "checkpoint: {directory: \"",
                                absl::StrReplaceAll(mine, {{"\033", "\\e"}}), "\"}\n"));
    v1::Job job;
    ASSERT_TRUE(jobs_->CreateJob(As("anna").get(), request, &job).ok());
    Move(job.name().substr(5), JobState::kCancelled);
    std::string asked;
    ask_ = [&](const std::string& question) {
      asked = question;
      return "y";
    };
    EXPECT_EQ(Run({"delete", job.name()}).code, kExitDone);
    EXPECT_THAT(asked,
                HasSubstr("; 1 checkpoint (2 B) in " + directory_.path() + "/" + shown + " stays"));
  }
}

// The daemon knows of no other directory than its own, and tells no summary.
TEST_F(DeleteCommandTest, CheckpointsOfAJobWhoseFileIsNotUnderstoodAnyMoreAreLost) {
  Job job;
  job.id = ledger_->NewId();
  job.uid = 1000;
  job.user = "anna";
  megatrain::JobFile file;
  file.yaml = "future_key: 1\n";
  job.file = std::make_shared<const megatrain::JobFile>(file);
  ASSERT_TRUE(ledger_->Add(job, "").ok());
  Move(job.id, JobState::kCancelled);
  const std::string step =
      directory_.path() + "/state/jobs/" + job.id + "/checkpoints/step-00000010";
  std::filesystem::create_directories(step);
  std::ofstream(step + "/manifest.json") << "{}";
  std::string asked;
  ask_ = [&](const std::string& question) {
    asked = question;
    return "y";
  };
  EXPECT_EQ(Run({"delete", job.id}).code, kExitDone);
  EXPECT_THAT(asked, HasSubstr("log, and 1 checkpoint (2 B)? "));
}

TEST_F(DeleteCommandTest, WithoutATerminalItWantsToBeTold) {
  const std::string id = Cancelled();
  const Result refused = Run({"delete", id});
  EXPECT_EQ(refused.code, kExitUsage);
  EXPECT_THAT(refused.err, HasSubstr("--yes"));
  EXPECT_TRUE(IsThere(id));
  EXPECT_EQ(Run({"delete", id, "--yes", "-q"}).out, "jobs/" + id + "\n");
  const std::string other = Cancelled();
  EXPECT_EQ(Json({"delete", other, "-y"})["deleted"], true);
}

TEST_F(DeleteCommandTest, AJobThatGoesOnIsNotDeleted) {
  const std::string id = Create();
  const Result refused = Run({"delete", id, "--yes"});
  EXPECT_EQ(refused.code, kExitUsage);
  EXPECT_THAT(refused.err, HasSubstr("cancel it first"));
  EXPECT_TRUE(IsThere(id));
  EXPECT_EQ(Run({"delete", "nosuchjob", "--yes"}).code, kExitNotFound);
}

}  // namespace
}  // namespace megatrain::client
