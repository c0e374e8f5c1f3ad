#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/client/commands/program_fixture.h"

namespace megatrain::client {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SubmitCommandTest : public ProgramTest {};

TEST_F(SubmitCommandTest, ValidatingHasNoNameToPrintAndNothingToWatch) {
  const Result result = Run({"submit", JobFile(), "--validate-only", "--quiet"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(Run({"submit", JobFile(), "--validate-only"}).out,
            "demo is valid and fits; nothing was submitted\n");
  EXPECT_EQ(Run({"submit", JobFile(), "--validate-only", "--watch"}).code, kExitUsage);
  StopDaemon();
  const Result away = Run({"submit", JobFile(), "--validate-only"});
  EXPECT_EQ(away.code, kExitUnreachable);
  EXPECT_THAT(away.err, Not(HasSubstr("--request-id"))) << "nothing can be there twice";
  StartDaemon();
}

TEST_F(SubmitCommandTest, CtrlCLeavesBeforeTheAnswerAndNamesTheRequest) {
  const pthread_t user = pthread_self();
  std::promise<void> left;
  plan_ = [user, has_left = left.get_future().share(), plan = plan_](const JobSpec& spec) {
    if (has_left.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      pthread_kill(user, SIGINT);
    }
    has_left.wait();
    return plan(spec);
  };
  const Result result = Run({"submit", JobFile(), "--watch", "--request-id", "r-1"});
  left.set_value();
  EXPECT_EQ(result.code, kExitInterrupted) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("--request-id r-1"));
  EXPECT_EQ(Run({"submit", JobFile(), "--request-id", "r-1"}).code, kExitDone);
  EXPECT_EQ(Json({"ls"}).size(), 1u);
}

// Nobody takes them before the program waits for the server.
TEST_F(SubmitCommandTest, SignalsAreNotHeldBackWhileTheJobFileIsRead) {
  const std::string pipe = directory_.path() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string status = absl::StrCat("/proc/self/task/", gettid(), "/status");
  uint64_t blocked = ~uint64_t{0};
  std::thread writer([&] {
    std::ofstream out(pipe);  // waits for the reader
    std::ifstream in(status);
    for (std::string word; in >> word;) {
      if (word == "SigBlk:") in >> std::hex >> blocked;
    }
    out << "nonsense: 1\n";
  });
  EXPECT_EQ(Run({"submit", pipe, "--watch"}).code, kExitUsage);
  writer.join();
  EXPECT_EQ(blocked >> (SIGINT - 1) & 1, 0u);
}

// A program that reads the records line by line would stumble over anything else.
TEST_F(SubmitCommandTest, AsRecordsTheJobOpensWhatIsWatched) {
  std::thread ending([this] {
    WaitUntil([this] { return server_->streams() >= 3; });
    const std::string id = ledger_->table().All().front()->id;
    MoveToRunning(id);
    Move(id, JobState::kSucceeded);
  });
  const Result result = Run({"submit", JobFile(), "--watch", "-o", "json"});
  ending.join();
  EXPECT_EQ(result.code, kExitDone) << result.err;
  const std::vector<std::string> lines = Lines(result.out);
  for (const std::string& line : lines) EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  ASSERT_FALSE(lines.empty());
  EXPECT_THAT(lines.front(), HasSubstr("{\"job\":{\"name\":\"jobs/"));
}

}  // namespace
}  // namespace megatrain::client
