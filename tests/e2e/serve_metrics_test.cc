// The metrics of `megatraind serve` while a job trains, as Prometheus would read them.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "megatrain/v1/job_service.grpc.pb.h"
#include "tests/server/metrics/http_request.h"
#include "tests/support/child_process.h"
#include "tests/support/test_directory.h"
#include "tests/support/wait_until.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Binary() { return fs::absolute("server/megatraind").string(); }

class ServeMetricsTest : public ::testing::Test {
 protected:
  std::unique_ptr<ChildProcess> Serve(const std::string& name, const std::string& metrics_listen) {
    return std::make_unique<ChildProcess>(
        std::vector<std::string>{
            Binary(), "serve", "--set", "state_directory=" + (directory_ / name).string(), "--set",
            "listen=[\"unix:" + (directory_ / (name + ".sock")).string() + "\"]", "--set",
            "device=cpu", "--set", "host_memory=256MiB", "--set",
            "metrics_listen=" + metrics_listen, "--set", "threads=1"},
        directory_ / (name + ".log"));
  }

  void WaitUntil(const std::function<bool()>& condition) {
    ASSERT_TRUE(megatrain::WaitUntil(condition, [this] { return !daemon_->Running(); }))
        << daemon_->Output();
  }

  // Starts the daemon and learns where its page is.
  void StartDaemon() {
    daemon_ = Serve("d", "127.0.0.1:0");
    const std::string before = "metrics on http://";
    size_t at = 0;
    WaitUntil([&] { return (at = daemon_->Output().find(before)) != std::string::npos; });
    WaitUntil([&] { return daemon_->Output().find("/metrics", at) != std::string::npos; });
    const std::string log = daemon_->Output();
    const size_t begin = at + before.size();
    address_ = log.substr(begin, log.find("/metrics", begin) - begin);
    WaitUntil([&] { return HttpGet(address_, "/readyz").code == 200; });
  }

  std::string Page() const { return HttpGet(address_, "/metrics").body; }

  const TestDirectory own_{TestDirectory::Place::kShort};
  const fs::path directory_ = own_.path();
  std::string address_;
  std::unique_ptr<ChildProcess> daemon_;
};

TEST_F(ServeMetricsTest, ThePageTellsOfTheJobAndOfTheCalls) {
  std::ofstream(directory_ / "secret.txt") << std::string(4000, 'a') << std::string(4000, 'b');
  ChildProcess init({Binary(), "init", "--preset", "llama-tiny", "--out", directory_ / "model"},
                    directory_ / "init.log");
  ASSERT_EQ(init.Wait(), 0) << init.Output();
  StartDaemon();
  EXPECT_EQ(HttpGet(address_, "/livez").code, 200);

  const auto jobs = v1::JobService::NewStub(grpc::CreateChannel(
      "unix:" + (directory_ / "d.sock").string(), grpc::InsecureChannelCredentials()));
  v1::CreateJobRequest request;
  v1::JobFile* const file = request.mutable_job()->mutable_file();
  file->set_file_name("job.yaml");
  file->set_yaml("name: secret\nmodel: {path: " + (directory_ / "model").string() +
                 "}\ndata:\n  train: [{path: " + (directory_ / "secret.txt").string() +
                 ", format: text}]\n  sequence_length: 64\n  tokenizer: bytes\n"
                 "training: {steps: 12, global_batch: 2, micro_batch: 2}\n"
                 "checkpoint: {every_steps: 5}\nengine: {threads: 1}\n");
  v1::Job job;
  grpc::ClientContext context;
  const grpc::Status status = jobs->CreateJob(&context, request, &job);
  ASSERT_TRUE(status.ok()) << status.error_message();
  WaitUntil(
      [&] { return Page().find("megatrain_jobs{state=\"SUCCEEDED\"} 1\n") != std::string::npos; });

  const std::string page = Page();
  for (const char* text : {"\nmegatrain_step 12\n", "\nmegatrain_step_duration_seconds_count 12\n",
                           "\nmegatrain_loss ", "\nmegatrain_nonfinite_steps_total 0\n",
                           "\nmegatrain_checkpoint_duration_seconds ",
                           "\nmegatrain_grpc_requests_total{method=\"CreateJob\",code=\"OK\"} 1\n",
                           "\nmegatrain_host_pool_bytes{kind=\"free\"} 268435456\n"}) {
    EXPECT_THAT(page, HasSubstr(text));
  }
  // Not whose it is, nor what it is called, reads and writes.
  EXPECT_THAT(page, Not(HasSubstr("secret")));
  EXPECT_THAT(page, Not(HasSubstr(directory_.string())));
  // It has ended: it is not named any more.
  EXPECT_THAT(page, Not(HasSubstr("megatrain_job_info{")));
}

TEST_F(ServeMetricsTest, AnAddressThatIsTakenIsRefusedIfItWasAskedFor) {
  StartDaemon();
  const std::unique_ptr<ChildProcess> second = Serve("second", address_);
  EXPECT_EQ(second->Wait(), 1);
  EXPECT_THAT(second->Output(), HasSubstr("metrics_listen: cannot listen on " + address_));
}

}  // namespace
}  // namespace megatrain
