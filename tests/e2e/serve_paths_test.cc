// A daemon with roots: jobs reach what is beneath them and nothing else.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "megatrain/v1/job_service.grpc.pb.h"
#include "tests/e2e/daemon_process.h"
#include "tests/support/child_process.h"
#include "tests/support/test_directory.h"
#include "tests/support/wait_until.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;

class ServePathsTest : public ::testing::Test {
 protected:
  ServePathsTest() {
    fs::create_directory(root_);
    for (const fs::path& path : {directory_ / "train.txt", root_ / "train.txt"}) {
      std::ofstream(path) << std::string(2000, 'a');
    }
    fs::create_symlink("../train.txt", root_ / "link.txt");
    ChildProcess init({Binary(), "init", "--preset", "llama-tiny", "--out", root_ / "model"},
                      directory_ / "init.log");
    EXPECT_EQ(init.Wait(), 0) << init.Output();
  }

  static std::string Binary() { return fs::absolute("server/megatraind").string(); }
  std::vector<std::string> Arguments(const std::string& roots) const {
    return {Binary(), "serve",
            "--set",  "state_directory=" + (directory_ / "state").string(),
            "--set",  "listen=[\"" + Address() + "\"]",
            "--set",  "device=cpu",
            "--set",  "host_memory=128MiB",
            "--set",  "threads=1",
            "--set",  "metrics_listen=\"\"",
            "--set",  "roots=[" + roots + "]"};
  }
  std::string Address() const { return "unix:" + (directory_ / "m.sock").string(); }

  void WaitUntil(const std::function<bool()>& condition) {
    ASSERT_TRUE(megatrain::WaitUntil(condition, [this] { return !daemon_->Running(); }))
        << daemon_->Output();
  }

  // Asks again while the daemon starts.
  grpc::Status Create(const std::string& data, const std::string& output, v1::Job* job) {
    v1::CreateJobRequest request;
    v1::JobFile* const file = request.mutable_job()->mutable_file();
    file->set_file_name("job.yaml");
    file->set_yaml("name: tiny\nmodel: {path: " + (root_ / "model").string() +
                   "}\ndata:\n  train: [{path: " + data +
                   ", format: text}]\n  sequence_length: 32\n  tokenizer: bytes\n"
                   "training: {steps: 2, global_batch: 2, micro_batch: 1}\n"
                   "output: {directory: \"" +
                   output + "\"}\nengine: {threads: 1}\n");
    grpc::Status status;
    WaitUntil([&] {
      AwaitConnection(channel_.get());
      grpc::ClientContext context;
      status = jobs_->CreateJob(&context, request, job);
      return status.error_code() != grpc::StatusCode::UNAVAILABLE;
    });
    return status;
  }

  const TestDirectory own_{TestDirectory::Place::kShort};
  const fs::path directory_ = own_.path(), root_ = directory_ / "root";
  std::unique_ptr<ChildProcess> daemon_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
};

TEST_F(ServePathsTest, JobsStayBeneathTheRoots) {
  daemon_ = std::make_unique<ChildProcess>(Arguments(root_.string()), directory_ / "daemon.log");
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
  channel_ = grpc::CreateCustomChannel(Address(), grpc::InsecureChannelCredentials(), arguments);
  jobs_ = v1::JobService::NewStub(channel_);
  v1::Job job;
  for (const std::string& path :
       {(directory_ / "train.txt").string(), (directory_ / "none.txt").string(),
        (root_ / "link.txt").string(), "/proc/self/root" + (directory_ / "train.txt").string()}) {
    const grpc::Status status = Create(path, "", &job);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << status.error_message();
    EXPECT_THAT(status.error_message(),
                AllOf(HasSubstr("data.train: " + path), HasSubstr(root_.string())));
  }
  const grpc::Status outside = Create(root_ / "train.txt", directory_ / "out", &job);
  EXPECT_EQ(outside.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(outside.error_message(), HasSubstr("output.directory: "));

  const grpc::Status created = Create(root_ / "train.txt", root_ / "out", &job);
  ASSERT_TRUE(created.ok()) << created.error_message();
  WaitUntil([&] {
    grpc::ClientContext context;
    v1::GetJobRequest request;
    request.set_name(job.name());
    return jobs_->GetJob(&context, request, &job).ok() && job.has_end_time();
  });
  EXPECT_EQ(job.state(), v1::Job::SUCCEEDED) << job.reason_text();
  struct stat info = {};
  ASSERT_EQ(::stat((root_ / "out/model.safetensors").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
  ASSERT_EQ(::stat((root_ / "out").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0750u);

  v1::ExportJobRequest request;
  request.set_name(job.name());
  request.set_directory(directory_ / "exported");
  grpc::ClientContext context;
  v1::ExportJobResponse response;
  const auto reader = jobs_->ExportJob(&context, request);
  while (reader->Read(&response)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_FALSE(fs::exists(directory_ / "exported"));
}

TEST_F(ServePathsTest, ARootThatIsNotThereKeepsTheDaemonFromStarting) {
  ChildProcess daemon(Arguments((directory_ / "none").string()), directory_ / "daemon.log");
  EXPECT_EQ(daemon.Wait(), 1) << daemon.Output() << "it may be mounted later";
  EXPECT_THAT(daemon.Output(), AllOf(HasSubstr("roots: "), HasSubstr("/none")));
}

}  // namespace
}  // namespace megatrain
