// A short form of what daemon_bench does for long: a daemon that is killed at random moments while
// jobs are submitted, paused and followed loses nothing.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/bench/daemon/kill_run.h"
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

}  // namespace
}  // namespace megatrain
