#include "server/metrics/metrics_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/metrics/http_request.h"
#include "tests/server/metrics/test_page.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// One server for all tests: it takes two seconds to stop.
class MetricsServerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    FillMetrics(&metrics());
    MetricsSources sources;
    sources.page = [] { return metrics().Page(TestNode()); };
    sources.ready = [] {
      return ready_ ? absl::OkStatus() : absl::UnavailableError("not yet: pinning");
    };
    server_ = MetricsServer::Start("127.0.0.1:0", sources).value().release();
  }
  static void TearDownTestSuite() { delete server_; }

  static DaemonMetrics& metrics() {
    static DaemonMetrics metrics("1.2.3", "cpu", {}, DescribeTestRun);
    return metrics;
  }
  static HttpAnswer Get(const std::string& path) { return HttpGet(server_->address(), path); }

  static inline std::atomic<bool> ready_{false};
  static inline MetricsServer* server_ = nullptr;
};

TEST_F(MetricsServerTest, ServesThePageInPrometheusFormat) {
  const HttpAnswer answer = Get("/metrics");
  EXPECT_EQ(answer.code, 200);
  EXPECT_THAT(answer.head, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8"));
  EXPECT_EQ(answer.body, metrics().Page(TestNode()));
}

TEST_F(MetricsServerTest, AnAnswerSaysHowLongThePageIs) {
  const std::string length =
      "Content-Length: " + std::to_string(metrics().Page(TestNode()).size()) + "\r\n";
  EXPECT_THAT(Get("/metrics").head, HasSubstr(length));
  EXPECT_THAT(HttpGet(server_->address(), "/metrics", "HEAD").head, HasSubstr(length));
}

TEST_F(MetricsServerTest, ReadyOnlyWhenJobsCanRunButAliveAllTheTime) {
  EXPECT_EQ(Get("/livez").code, 200);
  EXPECT_EQ(Get("/readyz").code, 503);
  EXPECT_EQ(Get("/readyz").body, "not yet: pinning\n");
  ready_ = true;
  EXPECT_EQ(Get("/readyz").code, 200);
  EXPECT_EQ(Get("/livez").code, 200);
}

TEST_F(MetricsServerTest, NothingElseIsThere) {
  for (const char* path :
       {"/", "/metrics/x", "/etc/passwd", "/../etc/passwd", "/%2e%2e/etc/passwd", "/metricsx"}) {
    EXPECT_THAT(Get(path).code, testing::AnyOf(404, 400)) << path;
  }
  EXPECT_EQ(Get("/metrics?x=1").code, 200);
}

TEST_F(MetricsServerTest, NothingCanBeChanged) {
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH"}) {
    EXPECT_EQ(HttpGet(server_->address(), "/metrics", method).code, 405) << method;
  }
  const HttpAnswer head = HttpGet(server_->address(), "/metrics", "HEAD");
  EXPECT_EQ(head.code, 200);
  EXPECT_EQ(head.body, "");
}

// As a browser asks before it lets a page of another site read them.
TEST_F(MetricsServerTest, PagesOfOtherSitesAreNotLetIn) {
  const HttpAnswer answer =
      SendHttp(server_->address(),
               "OPTIONS /metrics HTTP/1.1\r\nHost: test\r\nOrigin: http://elsewhere\r\n"
               "Access-Control-Request-Method: GET\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(answer.code, 405);
  EXPECT_THAT(answer.head, Not(HasSubstr("Access-Control")));
}

TEST_F(MetricsServerTest, RequestsThatAreNoneDoNotHurt) {
  SendHttp(server_->address(), "nonsense\r\n\r\n");
  SendHttp(server_->address(), "GET /metrics HTTP/9.9\r\n\r\n");
  SendHttp(server_->address(), "GET " + std::string(8000, 'a') + " HTTP/1.1\r\n\r\n");
  SendHttp(server_->address(), std::string(100, '\0') + "\r\n\r\n");
  EXPECT_EQ(Get("/metrics").code, 200);
}

TEST_F(MetricsServerTest, ManyReadersAtOnce) {
  std::vector<std::thread> readers;
  std::atomic<int> good{0};
  for (int i = 0; i < 8; ++i) {
    readers.emplace_back([&] {
      for (int j = 0; j < 20; ++j) good += Get("/metrics").code == 200;
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(good, 160);
}

TEST_F(MetricsServerTest, AnAddressThatIsTakenIsRefused) {
  const auto second = MetricsServer::Start(server_->address(), {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("cannot listen on " + server_->address()));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("in use"));
}

TEST(MetricsThreadsTest, SlowPagesDoNotHoldUpAnother) {
  constexpr int kSlow = 15;
  std::promise<void> answered;
  const std::shared_future<void> answer = answered.get_future().share();
  MetricsSources sources;
  std::atomic<int> waiting{0};
  sources.page = [&]() -> std::string {
    ++waiting;
    answer.wait();
    return "";
  };
  sources.ready = [] { return absl::OkStatus(); };
  const auto server = MetricsServer::Start("127.0.0.1:0", sources).value();
  std::vector<std::thread> slow;
  for (int i = 0; i < kSlow; ++i) {
    slow.emplace_back([&] { HttpGet(server->address(), "/metrics"); });
  }
  while (waiting < kSlow) std::this_thread::yield();
  EXPECT_EQ(HttpGet(server->address(), "/readyz").code, 200);
  answered.set_value();
  for (std::thread& each : slow) each.join();
}

TEST(MetricsAddressTest, WhatIsNoAddressIsRefused) {
  for (const char* good : {"127.0.0.1:9464", "0.0.0.0:1", "[::1]:9464", "localhost:0", "h:65535"}) {
    EXPECT_TRUE(IsHostPort(good)) << good;
  }
  for (const char* bad : {"", "9464", ":9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x",
                          "127.0.0.1:9464s", "127.0.0.1:70000", "127.0.0.1:-1", "::1:9464",
                          "127.0.0.1:1,127.0.0.1:2", "a:1,b:2", "http://localhost:9464", "[]:1",
                          "unix:/tmp/socket", "h:65536", "[::1:1", "::1]:1", "a b:1"}) {
    EXPECT_FALSE(IsHostPort(bad)) << bad;
    EXPECT_THAT(std::string(MetricsServer::Start(bad, {}).status().message()),
                HasSubstr("expects HOST:PORT"))
        << bad;
  }
}

TEST(MetricsAddressTest, AHostThatIsNotThisMachineIsRefused) {
  const auto server = MetricsServer::Start("192.0.2.1:0", {});
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("cannot listen on 192.0.2.1:0"));
}

}  // namespace
}  // namespace megatrain
