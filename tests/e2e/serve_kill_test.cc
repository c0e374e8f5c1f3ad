// A short form of what daemon_bench does for long: a daemon that is killed at random moments while
// jobs are submitted, paused and followed loses nothing.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>

#include "tests/bench/daemon/kill_run.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/workplace.h"

namespace megatrain {
namespace {

TEST(ServeKillTest, NothingIsLostAndTheBitsAreTheSame) {
  const auto place =
      Workplace::Make(std::filesystem::absolute("server/megatraind").string(), "llama-tiny");
  ASSERT_TRUE(place.ok()) << place.status();
  KillRunOptions options;
  options.kills = 5;
  options.life_seconds = 1;
  options.shape = {.steps = 40, .checkpoint_every_steps = 10, .threads = 1};
  const auto result = RunKills(**place, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GE(result->jobs, 3);
}

// No checkpoint is saved in between: what it reached is in its records alone.
TEST(ServeKillTest, AJobThatGetsFurtherEachTimeIsNotGivenUp) {
  const auto place =
      Workplace::Make(std::filesystem::absolute("server/megatraind").string(), "llama-tiny");
  ASSERT_TRUE(place.ok()) << place.status();
  const auto options = (*place)->NewDaemon("d");
  ASSERT_TRUE(options.ok()) << options.status();
  const JobShape shape = {.steps = 100'000, .threads = 1, .link_gigabytes_per_second = 0.1};
  std::string name;
  // Five deaths without any progress would end it.
  for (int64_t life = 1; life <= 6; ++life) {
    const auto daemon = DaemonProcess::Start(*options);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    if (life == 1) {
      const auto job = (*daemon)->Create((*place)->Request(shape, ""));
      ASSERT_TRUE(job.ok()) << job.status();
      name = job->name();
    }
    const absl::Status reached = (*daemon)->WaitForStep(name, 4 * life);
    ASSERT_TRUE(reached.ok()) << life << ": " << reached;
    (*daemon)->process().Signal(SIGKILL);
    (*daemon)->process().Wait();
  }
}

}  // namespace
}  // namespace megatrain
