#include "server/daemon/job_roots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(JobRootsTest, WhereNoneAreNamedItMattersWhoCanReachTheDaemon) {
  const DaemonConfig config;
  EXPECT_THAT(*JobRoots(config, /*shared=*/false), IsEmpty());
  EXPECT_THAT(*JobRoots(config, /*shared=*/true), ElementsAre("/srv/megatrain"));
}

TEST(JobRootsTest, NamedOnesHold) {
  DaemonConfig config;
  config.roots = {"/a", "/b"};
  for (const bool shared : {false, true}) {
    EXPECT_THAT(*JobRoots(config, shared), ElementsAre("/a", "/b"));
  }
}

TEST(JobRootsTest, OnlyAPrivateDaemonCanBeToldToHaveNone) {
  DaemonConfig config;
  config.roots.emplace();
  EXPECT_THAT(*JobRoots(config, /*shared=*/false), IsEmpty());
  const absl::Status status = JobRoots(config, /*shared=*/true).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("roots: "));
}

}  // namespace
}  // namespace megatrain
