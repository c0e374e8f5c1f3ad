// What is given to Prometheus and Grafana names metrics that there are, and Prometheus understands
// the page: by its own tools.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/metrics/daemon_metrics.h"
#include "server/metrics/metrics_server.h"
#include "tests/server/metrics/http_request.h"
#include "tests/server/metrics/test_page.h"
#include "tests/support/child_process.h"
#include "tests/support/read_file.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kDashboard[] = "deploy/grafana/dashboards/megatrain.json";

// Of a program that the tests need; a failure that says where it comes from.
std::string FindProgram(const std::string& name) {
  std::stringstream path(getenv("PATH"));
  for (std::string directory; std::getline(path, directory, ':');) {
    const std::string file = directory + "/" + name;
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  ADD_FAILURE() << name << " is missing: it is in Debian's package prometheus, which "
                << "deploy/install-deps.sh --tests installs";
  return "/bin/false";
}

// The exit code; what was said is in `output`.
int RunProgram(const std::vector<std::string>& arguments, std::string* output) {
  ChildProcess child(arguments, testing::TempDir() + "/output");
  const int code = child.Wait();
  *output = child.Output();
  return code;
}

std::string FilledPage() {
  DaemonMetrics metrics("1.2.3", "cpu", {}, DescribeTestRun);
  FillMetrics(&metrics);
  return metrics.Page(TestNode());
}

// Every name that a query may use: samples of the page, and what the recording rules make.
std::set<std::string> KnownNames() {
  std::set<std::string> names;
  for (const auto& [name, type] : PageTypes(FilledPage())) {
    if (type == "histogram") {
      for (const char* suffix : {"_bucket", "_sum", "_count"}) names.insert(name + suffix);
    } else {
      names.insert(name);
    }
  }
  std::stringstream rules(ReadFileOrEmpty("deploy/prometheus/recording_rules.yml"));
  for (std::string line; std::getline(rules, line);) {
    const size_t at = line.find("record: ");
    if (at != std::string::npos) names.insert(line.substr(at + 8));
  }
  return names;
}

// Words of `text` that are metrics of ours, recorded ones with their colons.
std::set<std::string> MetricsIn(const std::string& text) {
  std::set<std::string> names;
  const auto in_name = [](char c) { return isalnum(c) || c == '_' || c == ':'; };
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (end < text.size() && in_name(text[end])) ++end;
    std::string word = text.substr(begin, end - begin);
    while (!word.empty() && word.back() == ':') word.pop_back();
    if (word.find("megatrain_") != std::string::npos) names.insert(word);
    begin = end + 1;
  }
  return names;
}

// All strings under keys named `key`.
void Collect(const nlohmann::json& json, const std::string& key, std::vector<std::string>* out) {
  for (auto it = json.begin(); it != json.end(); ++it) {
    if (json.is_object() && it.key() == key && it->is_string()) out->push_back(*it);
    if (it->is_structured()) Collect(*it, key, out);
  }
}

std::vector<std::string> DashboardQueries() {
  std::vector<std::string> queries;
  const nlohmann::json dashboard = nlohmann::json::parse(ReadFileOrEmpty(kDashboard));
  Collect(dashboard, "expr", &queries);
  Collect(dashboard.at("templating"), "query", &queries);
  return queries;
}

TEST(PrometheusTest, PromtoolAcceptsThePage) {
  const std::string file = testing::TempDir() + "/page.txt";
  const std::string idle = DaemonMetrics("1.2.3", "cpu").Page({});
  for (const std::string& page : {FilledPage(), idle}) {
    std::ofstream(file) << page;
    std::string output;
    const std::string command = absl::StrCat(FindProgram("promtool"), " check metrics < ", file);
    EXPECT_EQ(RunProgram({"/bin/sh", "-c", command}, &output), 0) << output << page;
    EXPECT_EQ(output, "") << page;
  }
}

TEST(PrometheusTest, PromtoolAcceptsConfigurationAndRules) {
  const std::string promtool = FindProgram("promtool");
  std::string output;
  EXPECT_EQ(RunProgram({promtool, "check", "config", "deploy/prometheus/prometheus.yml"}, &output),
            0)
      << output;
  EXPECT_EQ(RunProgram({promtool, "check", "rules", "deploy/prometheus/recording_rules.yml",
                        "deploy/prometheus/alert_rules.yml"},
                       &output),
            0)
      << output;
}

TEST(PrometheusTest, RulesDoWhatTheirTestsSay) {
  std::string output;
  EXPECT_EQ(
      RunProgram({FindProgram("promtool"), "test", "rules", "deploy/prometheus/rules_test.yml"},
                 &output),
      0)
      << output;
}

TEST(PrometheusTest, EveryAlertIsTested) {
  std::stringstream rules(ReadFileOrEmpty("deploy/prometheus/alert_rules.yml"));
  const std::string tests = ReadFileOrEmpty("deploy/prometheus/rules_test.yml");
  int alerts = 0;
  for (std::string line; std::getline(rules, line);) {
    const size_t at = line.find("- alert: ");
    if (at == std::string::npos) continue;
    ++alerts;
    EXPECT_THAT(tests, HasSubstr("alertname: " + line.substr(at + 9) + "\n        exp_alerts:\n"));
  }
  EXPECT_GE(alerts, 8);
}

TEST(PrometheusTest, RulesNameMetricsThatThereAre) {
  const std::set<std::string> known = KnownNames();
  for (const char* file : {"recording_rules.yml", "alert_rules.yml", "rules_test.yml"}) {
    std::set<std::string> unknown;
    for (std::string name : MetricsIn(ReadFileOrEmpty(absl::StrCat("deploy/prometheus/", file)))) {
      // Names of the files' own groups.
      if (name == "megatrain_recording" || name == "megatrain_alerts") continue;
      if (known.count(name) == 0) unknown.insert(name);
    }
    EXPECT_THAT(unknown, IsEmpty()) << file;
  }
}

TEST(GrafanaTest, EveryQueryOfTheDashboardNamesMetricsThatThereAre) {
  const std::set<std::string> known = KnownNames();
  const std::vector<std::string> queries = DashboardQueries();
  EXPECT_GE(queries.size(), 20u);
  for (const std::string& query : queries) {
    if (query == "prometheus") continue;  // the data source's kind
    const std::set<std::string> names = MetricsIn(query);
    EXPECT_TRUE(!names.empty() || query.rfind("up{", 0) == 0) << query;
    for (const std::string& name : names) EXPECT_EQ(known.count(name), 1u) << query;
  }
}

// And recorded in no two ways.
TEST(GrafanaTest, EveryRecordingRuleIsUsed) {
  std::string users = ReadFileOrEmpty("deploy/prometheus/alert_rules.yml");
  for (const std::string& query : DashboardQueries()) absl::StrAppend(&users, query, "\n");
  const std::set<std::string> used = MetricsIn(users);
  std::stringstream rules(ReadFileOrEmpty("deploy/prometheus/recording_rules.yml"));
  std::set<std::string> recorded;
  for (std::string line; std::getline(rules, line);) {
    const size_t at = line.find("record: ");
    if (at == std::string::npos) continue;
    const std::string name = line.substr(at + 8);
    EXPECT_TRUE(recorded.insert(name).second) << name;
    EXPECT_EQ(used.count(name), 1u) << name << " is recorded for nobody";
  }
  EXPECT_GE(recorded.size(), 6u);
}

TEST(GrafanaTest, EveryMetricIsOnTheDashboard) {
  std::string all;
  for (const std::string& query : DashboardQueries()) absl::StrAppend(&all, query, "\n");
  absl::StrAppend(&all, ReadFileOrEmpty("deploy/prometheus/recording_rules.yml"));
  for (const auto& [name, type] : PageTypes(FilledPage())) {
    EXPECT_THAT(all, HasSubstr(name)) << name;
  }
}

TEST(GrafanaTest, PanelsDoNotOverlap) {
  const nlohmann::json dashboard = nlohmann::json::parse(ReadFileOrEmpty(kDashboard));
  std::set<std::pair<int, int>> taken;
  std::set<int> ids;
  for (const nlohmann::json& panel : dashboard.at("panels")) {
    EXPECT_TRUE(ids.insert(panel.at("id").get<int>()).second);
    const nlohmann::json& at = panel.at("gridPos");
    for (int x = at.at("x"); x < at.at("x").get<int>() + at.at("w").get<int>(); ++x) {
      EXPECT_LT(x, 24);
      for (int y = at.at("y"); y < at.at("y").get<int>() + at.at("h").get<int>(); ++y) {
        EXPECT_TRUE(taken.insert({x, y}).second) << panel.at("title");
      }
    }
  }
}

// The real program against a page that is served, both on loopback.
TEST(PrometheusTest, PrometheusScrapesAndEvaluates) {
  DaemonMetrics metrics("1.2.3", "cpu", {}, DescribeTestRun);
  FillMetrics(&metrics);
  const auto server =
      MetricsServer::Start("127.0.0.1:0", {.page = [&] { return metrics.Page(TestNode()); },
                                           .ready = [] { return absl::OkStatus(); }})
          .value();
  const std::string directory = testing::TempDir() + "/prometheus";
  std::filesystem::create_directories(directory);
  for (const char* file : {"recording_rules.yml", "alert_rules.yml"}) {
    std::filesystem::copy_file(absl::StrCat("deploy/prometheus/", file),
                               absl::StrCat(directory, "/", file),
                               std::filesystem::copy_options::overwrite_existing);
  }
  std::ofstream(directory + "/prometheus.yml")
      << absl::StrReplaceAll(ReadFileOrEmpty("deploy/prometheus/prometheus.yml"),
                             {{"127.0.0.1:9464", server->address()}, {"15s", "1s"}});
  const std::string log = directory + "/log";
  ChildProcess prometheus(
      {FindProgram("prometheus"), "--config.file=" + directory + "/prometheus.yml",
       "--storage.tsdb.path=" + directory + "/data", "--web.listen-address=127.0.0.1:0",
       "--log.level=info"},
      log);
  // level=info ... component=web msg="Listening on" address=127.0.0.1:41233
  const auto find_address = [&]() -> std::string {
    const std::string text = prometheus.Output();
    const size_t said = text.find("msg=\"Listening on\" address=");
    if (said == std::string::npos) return "";
    const size_t at = text.find("address=", said) + 8;
    return text.substr(at, text.find_first_of(" \n", at) - at);
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  const auto wait = [&](const std::function<bool()>& done) {
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline || !prometheus.Running()) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return true;
  };
  std::string address;
  ASSERT_TRUE(wait([&] {
    address = find_address();
    return !address.empty() && address.back() != ':' && address.substr(address.rfind(':')) != ":0";
  })) << prometheus.Output();
  // The value of the first sample of a query; "" = none.
  const auto query = [&](const std::string& expression) -> std::string {
    const nlohmann::json answer = nlohmann::json::parse(
        HttpGet(address, "/api/v1/query?query=" + expression).body, nullptr, false);
    if (answer.is_discarded() || answer.value("status", "") != "success") return "";
    const nlohmann::json& result = answer.at("data").at("result");
    return result.empty() ? "" : result[0].at("value")[1].get<std::string>();
  };
  EXPECT_TRUE(wait([&] { return query("up%7Bjob=%22megatrain%22%7D") == "1"; }))
      << prometheus.Output();
  EXPECT_EQ(query("megatrain_step"), "2");
  EXPECT_EQ(query("megatrain_job_info%7Bjob=%22id2%22%7D"), "1");
  EXPECT_EQ(query("megatrain_grpc_requests_total%7Bmethod=%22GetJob%22,code=%22NOT_FOUND%22%7D"),
            "1");
  EXPECT_TRUE(wait([&] { return !query("instance:megatrain_host_pool_used:ratio").empty(); }))
      << prometheus.Output();
  // Killed by ~ChildProcess; its data are this test's.
}

}  // namespace
}  // namespace megatrain
