#include "server/daemon/refusal_monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/server/metrics/test_page.h"

namespace megatrain {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

TEST(RefusalMonitorTest, CountsAllAndLogsSome) {
  DaemonMetrics metrics("1.2.3", "cpu");
  std::vector<std::string> log;
  absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  RefusalMonitor monitor(
      &metrics, [&](const std::string& line) { log.push_back(line); }, [&] { return now; });
  const Refusal forged{Refusal::Kind::kCaller, "TOKEN_INVALID", "ipv4:192.0.2.7:5000", "not known"};
  for (int i = 0; i < 1000; ++i) monitor.Add(forged);
  EXPECT_THAT(log,
              ElementsAre("refused a call from ipv4:192.0.2.7:5000: TOKEN_INVALID: not known"));
  // Another reason has a line of its own.
  monitor.Add({Refusal::Kind::kConnection, kNoFilesLeft, "0.0.0.0:9463", "no more files"});
  ASSERT_THAT(log, SizeIs(2));
  EXPECT_THAT(log[1], AllOf(HasSubstr("refused a connection to 0.0.0.0:9463"),
                            HasSubstr("NO_FILES_LEFT"), Not(HasSubstr("more for this reason"))));
  now += RefusalMonitor::kLineInterval;
  monitor.Add(forged);
  monitor.Add(forged);
  ASSERT_THAT(log, SizeIs(3));
  EXPECT_THAT(log[2], HasSubstr("(and 999 more for this reason since "));
  // A clock that was set back.
  now -= absl::Hours(1);
  monitor.Add(forged);
  ASSERT_THAT(log, SizeIs(4));
  EXPECT_THAT(log[3], HasSubstr("(and 1 more for this reason since "));

  const auto samples = PageSamples(metrics.Page(TestNode()));
  EXPECT_EQ(samples.at("megatrain_authentication_failures_total{reason=\"TOKEN_INVALID\"}"),
            "1003");
  EXPECT_EQ(samples.at("megatrain_connections_refused_total{reason=\"NO_FILES_LEFT\"}"), "1");
}

}  // namespace
}  // namespace megatrain
