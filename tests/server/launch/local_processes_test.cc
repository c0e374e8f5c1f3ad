#include "server/launch/local_processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string Job() { return absl::StrCat("test-", getpid()); }

TEST(LocalProcessesTest, TellsWhichHaveNotBegun) {
  auto third = std::make_unique<LocalProcesses>(Job(), 2);
  EXPECT_THAT(third->Missing(4), ElementsAre(0, 1, 3));
  const LocalProcesses first(Job(), 0), other_job(Job() + "-other", 1);
  EXPECT_THAT(first.Missing(3), ElementsAre(1));
  EXPECT_THAT(other_job.Missing(2), ElementsAre(0));
  third = nullptr;
  EXPECT_THAT(first.Missing(3), ElementsAre(1, 2));
}

TEST(LocalProcessesTest, WithoutANameOfTheJobNothingIsKnown) {
  EXPECT_THAT(LocalProcesses("", 0).Missing(3), IsEmpty());
  EXPECT_THAT(LocalProcesses(std::string(200, 'x'), 0).Missing(3), IsEmpty());
}

}  // namespace
}  // namespace megatrain
