// The metrics page and /readyz of a daemon, fed as the daemon feeds them.
#include "server/daemon/monitoring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/host/engine_host.h"
#include "server/store/job_store.h"
#include "tests/server/identity/test_certificates.h"
#include "tests/server/jobs/test_job.h"
#include "tests/server/metrics/http_request.h"
#include "tests/server/metrics/test_page.h"
#include "tests/server/store/faulty_vfs.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

TEST(MonitoringTest, ThePageHasWhatTheDaemonKnowsAndReadyzFollowsIt) {
  const TestDirectory directory;
  const TestCertificate issued = TestAuthority().Issue("server", "DNS:localhost");
  const TlsPaths paths = {directory.Write("pem", issued.certificate),
                          directory.Write("key", issued.key), ""};
  chmod(paths.key.c_str(), 0600);
  const auto tls = TlsFileWatch::Open(paths, TlsFileWatch::Options()).value();
  EngineHostOptions host_options;
  host_options.device = "cpu";
  const auto host = EngineHost::Create(host_options).value();
  FaultyVfs* const vfs = FaultyVfs::Install();
  JobLedger::Options options;
  options.state_directory = directory / "state";
  const auto ledger = JobLedger::Open(JobStore::Open(directory / "state").value(), options).value();
  Job job = TestJob(1);
  job.id = ledger->NewId();
  ASSERT_TRUE(ledger->Add(job, "submitted").ok());
  const auto end = [](const Job&) -> absl::StatusOr<std::optional<JobChange>> {
    return JobChange{JobState::kCancelled, JobReason::kUserRequest, "", {}};
  };
  vfs->FailAfter(0, SQLITE_FULL);
  EXPECT_FALSE(ledger->Change(job.id, end).ok());
  vfs->Heal();
  ASSERT_TRUE(ledger->Change(job.id, end).ok());
  NodeReporter node(host.get(), &ledger->table(), directory.path());
  DaemonConfig config;
  config.metrics_listen = "127.0.0.1:0";
  std::string line;
  const auto log = [&line](const std::string& text) { line = text; };
  const auto monitoring =
      Monitoring::Start(config, host.get(), ledger.get(), &node, FilesOfProcess(), tls.get(), log)
          .value();
  const size_t begin = line.find("http://") + 7;
  const std::string address = line.substr(begin, line.rfind('/') - begin);
  EXPECT_EQ(HttpGet(address, "/readyz").code, 503);
  node.SetState(v1::Node::READY);
  EXPECT_EQ(HttpGet(address, "/readyz").code, 200);
  node.SetState(v1::Node::STOPPING);
  EXPECT_EQ(HttpGet(address, "/readyz").code, 503);
  EXPECT_THAT(HttpGet(address, "/metrics").body,
              ::testing::Not(HasSubstr("\nmegatrain_device_changed_timestamp_seconds ")));
  monitoring->NoteDeviceChanged();
  const std::string page = HttpGet(address, "/metrics").body;
  for (const char* text :
       {"\nmegatrain_jobs_ended_total{state=\"CANCELLED\",reason=\"USER_REQUEST\"} 1\n",
        "\nmegatrain_store_errors_total 1\n", "\nmegatrain_device_busy{device=\"cpu\"} 0\n",
        "\nmegatrain_device_changed_timestamp_seconds ",
        "\nmegatrain_tls_certificate_expiry_timestamp_seconds "}) {
    EXPECT_THAT(page, HasSubstr(text));
  }
}

// An engine and a ledger without a job.
class MonitoringOfRunsTest : public ::testing::Test {
 protected:
  MonitoringOfRunsTest() {
    EngineHostOptions host;
    host.device = "cpu";
    host.devices = 2;
    host.threads = 2;
    host_ = EngineHost::Create(host).value();
    JobLedger::Options ledger;
    ledger.state_directory = directory_ / "state";
    ledger_ = JobLedger::Open(JobStore::Open(directory_ / "state").value(), ledger).value();
    node_ = std::make_unique<NodeReporter>(host_.get(), &ledger_->table(), directory_.path());
  }

  const TestDirectory directory_;
  std::unique_ptr<EngineHost> host_;
  std::unique_ptr<JobLedger> ledger_;
  std::unique_ptr<NodeReporter> node_;
};

TEST_F(MonitoringOfRunsTest, MfuIsOverTheRateOfTheJobsOwnDevicesAtItsPrecision) {
  ASSERT_TRUE(host_->MeasureRates().ok());
  const HardwareRates rates = host_->rates();
  DaemonConfig config;
  config.metrics_listen = "127.0.0.1:0";
  std::string line;
  // Whose files cannot be had any more.
  const OpenFiles none = [](int64_t,
                            const std::string&) -> absl::StatusOr<std::shared_ptr<FileSystem>> {
    return absl::NotFoundError("there is no account");
  };
  const auto monitoring =
      Monitoring::Start(config, host_.get(), ledger_.get(), node_.get(), none, nullptr,
                        [&line](const std::string& text) { line = text; })
          .value();
  const size_t begin = line.find("http://") + 7;
  const std::string address = line.substr(begin, line.rfind('/') - begin);
  // Of a job that makes as many FLOP/s as the machine can in FP32.
  const auto mfu = [&](const std::string& id, Precision precision,
                       const std::vector<int>& devices) {
    RunRequest run;
    run.job_id = id;
    run.spec.training.precision = precision;
    run.devices = devices;
    StepRecord record;
    record.step = 1;
    record.model_flops_per_second = rates.fp32.matmul_flops_per_second;
    for (RunObserver* const observer : monitoring->run_observers()) {
      observer->Tell(run, StepsBegin{1, 10});
      observer->Tell(run, record);
    }
    const auto samples = PageSamples(HttpGet(address, "/metrics").body);
    const auto found =
        samples.find("megatrain_mfu_ratio{device=\"cpu:" + std::to_string(devices[0]) + "\"}");
    return found == samples.end() ? -1 : std::stod(found->second);
  };
  EXPECT_NEAR(mfu("whole", Precision::kFp32, {0, 1}), 1, 1e-6);
  EXPECT_NEAR(mfu("half", Precision::kFp32, {1}), 2, 1e-6) << "half of the processors";
  const double ratio = rates.fp32.matmul_flops_per_second / rates.bf16.matmul_flops_per_second;
  EXPECT_NEAR(mfu("bf16", Precision::kBf16, {0, 1}) / ratio, 1, 1e-6);
}

TEST_F(MonitoringOfRunsTest, ADaemonWhoseDeviceIsMissingServesAPageThatSaysSo) {
  Job job = TestJob(1);
  job.id = ledger_->NewId();
  ASSERT_TRUE(ledger_->Add(job, "submitted").ok());
  std::vector<std::string> log;
  const auto note = [&log](const std::string& line) { log.push_back(line); };
  DaemonConfig config;
  config.metrics_listen = "127.0.0.1:0";
  const auto server = ServeDeviceMissing(config, &ledger_->table(), note);
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(HttpGet(server->address(), "/readyz").code, 503);
  EXPECT_THAT(HttpGet(server->address(), "/readyz").body, HasSubstr("its device is missing"));
  const auto samples = PageSamples(HttpGet(server->address(), "/metrics").body);
  EXPECT_EQ(samples.at("megatrain_device_missing"), "1");
  EXPECT_EQ(samples.at("megatrain_jobs{state=\"QUEUED\"}"), "1");
  EXPECT_TRUE(log.empty());
  // One that cannot be served is told, and nothing else comes of it.
  config.metrics_listen = server->address();
  EXPECT_EQ(ServeDeviceMissing(config, &ledger_->table(), note), nullptr);
  ASSERT_EQ(log.size(), 1u);
  EXPECT_THAT(log[0], HasSubstr("metrics_listen: cannot listen on "));
  config.metrics_listen = "";
  EXPECT_EQ(ServeDeviceMissing(config, &ledger_->table(), note), nullptr);
  EXPECT_EQ(log.size(), 1u) << "none is wanted";
}

}  // namespace
}  // namespace megatrain
