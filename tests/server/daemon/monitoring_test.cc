// The metrics page and /readyz of a daemon, fed as the daemon feeds them.
#include "server/daemon/monitoring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <optional>
#include <string>

#include "engine/host/engine_host.h"
#include "server/store/job_store.h"
#include "tests/server/identity/test_certificates.h"
#include "tests/server/jobs/test_job.h"
#include "tests/server/metrics/http_request.h"
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
  NodeMonitor node(host.get(), &ledger->table(), directory.path());
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

}  // namespace
}  // namespace megatrain
