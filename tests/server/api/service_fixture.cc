#include "tests/server/api/service_fixture.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/rpc/status.pb.h"
#include "server/store/job_store.h"

namespace megatrain {

absl::StatusOr<Caller> TestAuthenticator::Authenticate(
    const grpc::ServerContextBase& context) const {
  ++asked;
  const auto found = context.client_metadata().find("test-user");
  const std::string user = found == context.client_metadata().end()
                               ? nameless
                               : std::string(found->second.data(), found->second.size());
  if (user == "anna") return Caller{1000, "anna", false};
  if (user == "bob") return Caller{1001, "bob", false};
  if (user == "root") return Caller{0, "root", true};
  return absl::UnauthenticatedError("who are you?");
}

ShortDirectory::ShortDirectory() {
  std::string pattern = "/tmp/megatrain_XXXXXX";
  path_ = mkdtemp(pattern.data());
}

ShortDirectory::~ShortDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void ServiceTest::SetUp() {
  std::filesystem::create_directories(directory_.path() + "/model");
  std::ofstream(directory_.path() + "/model/config.json") << "{}";
  std::ofstream(directory_.path() + "/train.jsonl") << "{}\n";
  plan_ = [](const JobSpec&) {
    PlanReport report;
    report.fits = true;
    report.table = "all fits\n";
    report.parameters = 1;
    report.host_bytes = 2;
    report.host_limit_bytes = 3;
    return report;
  };
  options_.listen = {"unix:" + directory_.path() + "/m.sock"};
  options_.streams.heartbeat = std::chrono::milliseconds(100);
  options_.streams.pace = std::chrono::milliseconds(1);
  node_.set_name("nodes/local");
  node_.set_state(v1::Node::STARTING);
  node_.set_daemon_version("0.1.0");
  node_.mutable_start_time()->set_seconds(1000);
  StartDaemon();
}

void ServiceTest::TearDown() { StopDaemon(); }

void ServiceTest::StartDaemon() {
  const std::string state = directory_.path() + "/state";
  absl::StatusOr<std::unique_ptr<JobStore>> store = JobStore::Open(state);
  ASSERT_TRUE(store.ok()) << store.status();
  JobLedger::Options ledger_options;
  ledger_options.state_directory = state;
  absl::StatusOr<std::unique_ptr<JobLedger>> ledger =
      JobLedger::Open(*std::move(store), std::move(ledger_options));
  ASSERT_TRUE(ledger.ok()) << ledger.status();
  ledger_ = *std::move(ledger);
  JobManager::Options manager_options;
  manager_options.plan = [this](const JobSpec& spec, FileSystem*) { return plan_(spec); };
  manager_options.checkpoint = [this](const std::string&) { return engine_.Checkpoint(); };
  manager_options.write_export = [this](const std::string& checkpoint, const std::string& directory,
                                        const std::shared_ptr<FileSystem>&,
                                        std::function<void(const absl::Status&)> done) {
    engine_.Export(checkpoint, directory, std::move(done));
    return absl::OkStatus();
  };
  manager_ = std::make_unique<JobManager>(ledger_.get(), std::move(manager_options));
  records_ = std::make_unique<JobRecordsDirectory>(state + "/jobs");
  absl::StatusOr<std::unique_ptr<GrpcServer>> server =
      ServeApi(options_, &authenticator_, manager_.get(), records_.get(), [this] { return node_; });
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  jobs_ = v1::JobService::NewStub(Channel());
  nodes_ = v1::NodeService::NewStub(Channel());
}

void ServiceTest::StopDaemon() {
  server_.reset();
  records_.reset();
  manager_.reset();
  ledger_.reset();
}

std::shared_ptr<grpc::Channel> ServiceTest::Channel() const {
  return grpc::CreateChannel(options_.listen[0], grpc::InsecureChannelCredentials());
}

std::string ServiceTest::Yaml(const std::string& name) const {
  return absl::StrCat("name: ", name, "\nmodel: {path: ", directory_.path(),
                      "/model}\ndata: {train: [{path: ", directory_.path(),
                      "/train.jsonl, format: alpaca}]}\ntraining: {steps: 100}\n");
}

v1::CreateJobRequest ServiceTest::CreateRequest(const std::string& name) const {
  v1::CreateJobRequest request;
  request.mutable_job()->mutable_file()->set_yaml(Yaml(name));
  request.mutable_job()->mutable_file()->set_file_name("job.yaml");
  return request;
}

std::string ServiceTest::Create(const std::string& user, const std::string& name) {
  v1::Job job;
  const grpc::Status status = jobs_->CreateJob(As(user).get(), CreateRequest(name), &job);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return job.name().substr(std::string("jobs/").size());
}

void ServiceTest::Move(const std::string& id, JobState to, JobReason reason) {
  const absl::StatusOr<JobPtr> job =
      ledger_->Change(id, [&](const Job&) -> absl::StatusOr<std::optional<JobChange>> {
        JobChange change;
        change.to = to;
        change.reason = reason;
        change.text = "by the test";
        return change;
      });
  ASSERT_TRUE(job.ok()) << job.status();
}

std::shared_ptr<JobRecords> ServiceTest::Records(const std::string& id) {
  absl::StatusOr<std::shared_ptr<JobRecords>> records = records_->Open(id);
  EXPECT_TRUE(records.ok()) << records.status();
  return *std::move(records);
}

void ServiceTest::AddStep(const std::string& id, int64_t step) {
  StepRecord record;
  record.step = step;
  record.loss = 1.0 / static_cast<double>(step);
  record.time = Rfc3339Now();
  ASSERT_TRUE(Records(id)->AddStep(record).ok());
  ledger_->SetProgress(id, record, 0.5);
}

void ServiceTest::AddLine(const std::string& id, const std::string& text) {
  ASSERT_TRUE(Records(id)->AddLine(0, text).ok());
}

void WaitUntil(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  bool holds = condition();
  while (!holds && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    holds = condition();
  }
  ASSERT_TRUE(holds);
}

std::unique_ptr<grpc::ClientContext> As(const std::string& user) {
  auto context = std::make_unique<grpc::ClientContext>();
  if (!user.empty()) context->AddMetadata("test-user", user);
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  return context;
}

google::rpc::ErrorInfo InfoOf(const grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  EXPECT_TRUE(details.ParseFromString(status.error_details()) && details.details_size() == 1 &&
              details.details(0).UnpackTo(&info))
      << status.error_message();
  return info;
}

std::string CodeAndReason(const grpc::Status& status) {
  if (status.ok()) return "OK";
  return absl::StrCat(absl::StatusCodeToString(static_cast<absl::StatusCode>(status.error_code())),
                      " ", InfoOf(status).reason());
}

}  // namespace megatrain
