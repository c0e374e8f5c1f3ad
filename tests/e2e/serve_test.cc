// `megatraind serve` from outside, through its API: killed, stopped, started again. Whatever
// happens on the way, the weights at the end are those of a run that nothing disturbed, and no
// step, event or job is lost.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "megatrain/v1/job_service.grpc.pb.h"
#include "megatrain/v1/node_service.grpc.pb.h"
#include "tests/e2e/daemon_process.h"
#include "tests/support/child_process.h"
#include "tests/support/read_file.h"
#include "tests/support/test_directory.h"
#include "tests/support/wait_until.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int64_t kSteps = 200;

std::string Binary() { return fs::absolute("server/megatraind").string(); }

std::string TrainingText() {
  const char* words[] = {"the", "host", "holds", "a", "model", "and", "device", "one", "layer"};
  std::mt19937 random(7);
  std::string text;
  while (text.size() < 12000) {
    for (int i = 0; i < 8; ++i) text += std::string(words[random() % std::size(words)]) + " ";
    text += "\n";
  }
  return text;
}

std::vector<int64_t> UpTo(int64_t last) {
  std::vector<int64_t> numbers;
  for (int64_t i = 1; i <= last; ++i) numbers.push_back(i);
  return numbers;
}

// The names and bytes of all files.
std::string Contents(const fs::path& directory) {
  std::vector<fs::path> files;
  if (fs::exists(directory)) {
    for (const auto& entry : fs::directory_iterator(directory)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::string contents;
  for (const fs::path& file : files) {
    contents += file.filename().string() + "\n" + ReadFileOrEmpty(file) + "\n";
  }
  return contents;
}

class ServeTest : public ::testing::Test {
 protected:
  // The model and the run that nothing disturbs, once for all tests.
  static void SetUpTestSuite() {
    own_ = new TestDirectory(TestDirectory::Place::kShort);
    root_ = new fs::path(own_->path());
    std::ofstream(*root_ / "train.txt") << TrainingText();
    ChildProcess init(
        {Binary(), "init", "--preset", "llama-tiny", "--out", *root_ / "model", "--seed", "3"},
        *root_ / "init.log");
    ASSERT_EQ(init.Wait(), 0) << init.Output();
    std::ofstream(*root_ / "job.yaml") << Yaml();
    ChildProcess run({Binary(), "run", *root_ / "job.yaml", "--set",
                      "output.directory=" + (*root_ / "expected").string()},
                     *root_ / "run.log");
    ASSERT_EQ(run.Wait(), 0) << run.Output();
    ASSERT_THAT(Contents(*root_ / "expected"), HasSubstr("safetensors"));
  }
  static void TearDownTestSuite() {
    delete root_;
    delete own_;
  }

  static std::string Yaml() {
    return "name: tiny\n"
           "model: {path: " +
           (*root_ / "model").string() +
           "}\n"
           "data:\n"
           "  train: [{path: " +
           (*root_ / "train.txt").string() +
           ", format: text}]\n"
           "  sequence_length: 64\n"
           "  tokenizer: bytes\n"
           "training: {steps: " +
           std::to_string(kSteps) +
           ", global_batch: 4, micro_batch: 2}\n"
           "optimizer: {learning_rate: 1.0e-3}\n"
           "checkpoint: {every_steps: 10, keep: 2}\n"
           "engine: {threads: 1}\n";
  }

  void SetUp() override {
    directory_ = *root_ / ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::create_directories(directory_);
    fs::permissions(directory_, fs::perms::owner_all);
  }
  void TearDown() override {
    if (HasFailure() && daemon_ != nullptr) std::fputs(daemon_->Output().c_str(), stderr);
  }

  std::vector<std::string> Arguments() const {
    return {Binary(), "serve",
            "--set",  "state_directory=" + (directory_ / "state").string(),
            "--set",  "listen=[\"" + Address() + "\"]",
            "--set",  "device=cpu",
            "--set",  "host_memory=256MiB",
            "--set",  "threads=1"};
  }
  std::string Address() const { return "unix:" + (directory_ / "m.sock").string(); }

  // Until it is ready for jobs.
  void StartDaemon() {
    daemon_ = std::make_unique<ChildProcess>(Arguments(), directory_ / "daemon.log");
    // A new channel: an old one waits longer and longer between its attempts.
    grpc::ChannelArguments own;
    own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    own.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
    const auto channel =
        grpc::CreateCustomChannel(Address(), grpc::InsecureChannelCredentials(), own);
    jobs_ = v1::JobService::NewStub(channel);
    nodes_ = v1::NodeService::NewStub(channel);
    WaitUntil([&] {
      AwaitConnection(channel.get());
      v1::GetNodeRequest request;
      request.set_name("nodes/local");
      v1::Node node;
      grpc::ClientContext context;
      return nodes_->GetNode(&context, request, &node).ok() && node.state() == v1::Node::READY;
    });
  }

  void WaitUntil(const std::function<bool()>& condition) {
    ASSERT_TRUE(megatrain::WaitUntil(condition, [this] { return !daemon_->Running(); }))
        << daemon_->Output();
  }

  fs::path Output() const { return directory_ / "out"; }

  v1::CreateJobRequest CreateRequest(const std::string& request_id) const {
    v1::CreateJobRequest request;
    request.set_request_id(request_id);
    v1::JobFile* const file = request.mutable_job()->mutable_file();
    file->set_yaml(Yaml());
    file->set_file_name("job.yaml");
    file->add_overrides("output.directory=" + Output().string());
    // Steps of some 50 ms, so that a signal finds the job at the step it is meant for. The link's
    // rate does not touch the bits.
    file->add_overrides("engine.link_gigabytes_per_second=0.1");
    return request;
  }

  v1::Job Create(const std::string& request_id) {
    v1::Job job;
    grpc::ClientContext context;
    const grpc::Status status = jobs_->CreateJob(&context, CreateRequest(request_id), &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }

  v1::Job Get(const std::string& name) {
    v1::GetJobRequest request;
    request.set_name(name);
    request.set_view(v1::JOB_VIEW_FULL);
    v1::Job job;
    grpc::ClientContext context;
    const grpc::Status status = jobs_->GetJob(&context, request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }

  void WaitForState(const std::string& name, v1::Job::State state) {
    WaitUntil([&] { return Get(name).state() == state; });
  }

  // Reads on in the job's series of steps, up to `until` or as far as it goes.
  struct Series {
    int64_t next = 1;
    std::vector<int64_t> steps;  // that count
  };
  void ReadSteps(const std::string& name, Series* series, int64_t until) {
    v1::StreamStepMetricsRequest request;
    request.set_name(name);
    request.set_start_sequence(series->next);
    request.set_follow(true);
    grpc::ClientContext context;
    const auto reader = jobs_->StreamStepMetrics(&context, request);
    v1::StreamStepMetricsResponse message;
    while ((series->steps.empty() || series->steps.back() < until) && reader->Read(&message)) {
      EXPECT_FALSE(message.has_missed());
      for (const v1::StepMetricsRecord& record : message.batch().records()) {
        EXPECT_EQ(record.sequence(), series->next);
        series->next = record.sequence() + 1;
        if (!record.superseded()) series->steps.push_back(record.metrics().step());
      }
      if (message.has_fell_back()) {
        EXPECT_EQ(message.fell_back().sequence(), series->next);
        ++series->next;
        std::erase_if(series->steps,
                      [&](int64_t step) { return step > message.fell_back().checkpoint_step(); });
      }
    }
    context.TryCancel();
    reader->Finish();
  }

  std::vector<v1::JobEvent> Events(const std::string& name) {
    v1::WatchJobRequest request;
    request.set_name(name);
    grpc::ClientContext context;
    const auto reader = jobs_->WatchJob(&context, request);
    std::vector<v1::JobEvent> events;
    v1::WatchJobResponse message;
    while (reader->Read(&message)) {
      if (message.has_event()) events.push_back(message.event());
    }
    EXPECT_TRUE(reader->Finish().ok());
    return events;
  }

  void ExpectSameBits() { EXPECT_TRUE(Contents(Output()) == Contents(*root_ / "expected")); }

  static TestDirectory* own_;
  static fs::path* root_;
  fs::path directory_;
  std::unique_ptr<ChildProcess> daemon_;
  std::unique_ptr<v1::JobService::Stub> jobs_;
  std::unique_ptr<v1::NodeService::Stub> nodes_;
};

TestDirectory* ServeTest::own_ = nullptr;
fs::path* ServeTest::root_ = nullptr;

TEST_F(ServeTest, AJobThatIsKilledAgainAndAgainEndsInTheSameBits) {
  const std::string request_id = "0e7f4a51-9a7c-4f0e-8f63-1c5b7a0d2e44";
  StartDaemon();
  const std::string name = Create(request_id).name();
  Series live;
  int kills = 0;
  // After a first step, between checkpoints, and after some: each time some steps further than the
  // process before got, so that this one has made steps of its own.
  for (const int64_t further : {1, 12, 7, 15}) {
    ReadSteps(name, &live, Get(name).progress().step() + further);
    kills += Get(name).state() == v1::Job::RUNNING;
    daemon_->Signal(SIGKILL);
    EXPECT_EQ(daemon_->Wait(), -SIGKILL);
    StartDaemon();
    // The call whose answer may have been lost is repeated, and makes no second job.
    EXPECT_EQ(Create(request_id).name(), name);
  }
  EXPECT_GE(kills, 2);
  ReadSteps(name, &live, kSteps);
  WaitForState(name, v1::Job::SUCCEEDED);
  ExpectSameBits();

  const v1::Job job = Get(name);
  EXPECT_EQ(job.progress().step(), kSteps);
  EXPECT_GE(job.attempt_count(), kills + 1);
  EXPECT_EQ(job.file().yaml(), Yaml());
  // Who followed it all along and who reads it now see the same steps, each once.
  EXPECT_THAT(live.steps, ElementsAreArray(UpTo(kSteps)));
  Series late;
  ReadSteps(name, &late, kSteps);
  EXPECT_THAT(late.steps, ElementsAreArray(UpTo(kSteps)));
  // Every event follows from the one before.
  const std::vector<v1::JobEvent> events = Events(name);
  v1::Job::State state = v1::Job::STATE_UNSPECIFIED;
  int64_t sequence = 0;
  int restarts = 0;
  for (const v1::JobEvent& event : events) {
    EXPECT_EQ(event.sequence(), ++sequence);
    EXPECT_EQ(event.from_state(), state);
    state = event.to_state();
    restarts += event.reason() == v1::Job::PROCESS_RESTART && state == v1::Job::QUEUED;
  }
  EXPECT_EQ(state, v1::Job::SUCCEEDED);
  EXPECT_GE(restarts, kills);
}

TEST_F(ServeTest, AStoppedDaemonSavesAndTheNextOneGoesOn) {
  StartDaemon();
  const std::string name = Create("").name();
  Series live;
  ReadSteps(name, &live, 25);
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->Wait(), 0) << daemon_->Output();
  StartDaemon();
  ReadSteps(name, &live, kSteps);
  WaitForState(name, v1::Job::SUCCEEDED);
  ExpectSameBits();
  EXPECT_THAT(live.steps, ElementsAreArray(UpTo(kSteps)));
  // Nothing was done twice: what ran was saved.
  EXPECT_EQ(live.next, kSteps + 1);
}

TEST_F(ServeTest, AJobIsPausedAndResumedAndEndsInTheSameBits) {
  StartDaemon();
  const std::string name = Create("").name();
  Series live;
  for (const bool release : {false, true}) {
    ReadSteps(name, &live, release ? 40 : 15);
    v1::PauseJobRequest pause;
    pause.set_name(name);
    pause.set_release_host_memory(release);
    v1::Job job;
    {
      grpc::ClientContext context;
      const grpc::Status status = jobs_->PauseJob(&context, pause, &job);
      ASSERT_TRUE(status.ok()) << status.error_message();
    }
    WaitForState(name, v1::Job::PAUSED);
    WaitUntil([&] { return Get(name).host_memory_kept() == !release; });
    v1::ResumeJobRequest resume;
    resume.set_name(name);
    grpc::ClientContext context;
    ASSERT_TRUE(jobs_->ResumeJob(&context, resume, &job).ok());
  }
  ReadSteps(name, &live, kSteps);
  WaitForState(name, v1::Job::SUCCEEDED);
  ExpectSameBits();
  EXPECT_THAT(live.steps, ElementsAreArray(UpTo(kSteps)));
}

TEST_F(ServeTest, ACancelledJobEndsAndTheNextOneRuns) {
  StartDaemon();
  const std::string first = Create("").name();
  Series live;
  ReadSteps(first, &live, 2);
  v1::CancelJobRequest cancel;
  cancel.set_name(first);
  v1::Job job;
  {
    grpc::ClientContext context;
    ASSERT_TRUE(jobs_->CancelJob(&context, cancel, &job).ok());
  }
  WaitForState(first, v1::Job::CANCELLED);
  EXPECT_FALSE(fs::exists(Output()));
  const std::string second = Create("").name();
  WaitForState(second, v1::Job::SUCCEEDED);
  ExpectSameBits();
}

TEST_F(ServeTest, ASecondDaemonOnTheSameStateIsRefused) {
  StartDaemon();
  std::vector<std::string> arguments = Arguments();
  arguments[5] = "listen=[\"unix:" + (directory_ / "other.sock").string() + "\"]";
  ChildProcess second(arguments, directory_ / "second.log");
  EXPECT_EQ(second.Wait(), 1) << "the first may be about to end";
  EXPECT_THAT(second.Output(), HasSubstr("state"));
  // And one with another state on the same socket.
  arguments = Arguments();
  arguments[3] = "state_directory=" + (directory_ / "other").string();
  ChildProcess third(arguments, directory_ / "third.log");
  EXPECT_EQ(third.Wait(), 1);
  EXPECT_THAT(third.Output(), HasSubstr("another process listens"));
  // The first serves on.
  WaitForState(Create("").name(), v1::Job::SUCCEEDED);
}

}  // namespace
}  // namespace megatrain
