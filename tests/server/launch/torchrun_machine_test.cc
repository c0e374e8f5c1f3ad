// Where the launchers of a job of torchrun meet. tests/e2e/torchrun_test.cc runs such jobs.
#include "server/launch/torchrun_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace megatrain {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<MeetingPlace> PlaceOf(int port,
                                     const std::map<std::string, std::string>& variables) {
  const LaunchEnvironment launched = {.launcher = Launcher::kTorchrun,
                                      .rank = 4,
                                      .ranks = 8,
                                      .local_rank = 0,
                                      .local_ranks = 2,
                                      .node = "b",
                                      .master_address = "a",
                                      .master_port = port};
  return TorchrunMeetingPlace(launched, [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(TorchrunMachineTest, MachinesMeetAtTheMasterPort) {
  const absl::StatusOr<MeetingPlace> place = PlaceOf(65535, {});
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->job, "");
  EXPECT_EQ(place->address, "a");
  EXPECT_EQ(place->port, 65535);
  EXPECT_EQ(place->ranks, 8);
  EXPECT_EQ(place->first_rank, 4);
  EXPECT_EQ(place->local_ranks, 2);
}

// A job that torchrun starts anew has the same name: its agents count the attempts differently.
TEST(TorchrunMachineTest, MachinesMeetAboveThePortOfTorchrunsAgent) {
  const absl::StatusOr<MeetingPlace> place =
      PlaceOf(29500, {{"TORCHELASTIC_USE_AGENT_STORE", "True"},
                      {"TORCHELASTIC_RUN_ID", "j7"},
                      {"TORCHELASTIC_RESTART_COUNT", "2"}});
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->job, "j7");
  EXPECT_EQ(place->port, 29501);
  EXPECT_EQ(PlaceOf(29500, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})->port, 29500);
}

TEST(TorchrunMachineTest, ThereMustBeAPortAboveTheAgents) {
  const absl::StatusOr<MeetingPlace> place =
      PlaceOf(65535, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_EQ(place.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(place.status().message(), HasSubstr("MASTER_PORT=65535"));
}

}  // namespace
}  // namespace megatrain
