// Clients that ask for much and read nothing.
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/server/api/service_fixture.h"

namespace megatrain {
namespace {

constexpr char kGetJob[] = "/megatrain.v1.JobService/GetJob";
constexpr char kPauseJob[] = "/megatrain.v1.JobService/PauseJob";
constexpr char kWatchJob[] = "/megatrain.v1.JobService/WatchJob";

struct Answer {
  v1::Job job;
  grpc::Status end;
};

// A connection of its own whose calls are sent at once and read later, or never.
class Pipeline {
 public:
  Pipeline(const std::string& address, std::string user) : user_(std::move(user)) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    stub_ = std::make_unique<grpc::GenericStub>(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }
  ~Pipeline() {
    for (Call& call : calls_) {
      if (call.read) continue;
      call.context->TryCancel();
      grpc::Status status;
      call.stream->Finish(&status, nullptr);
      Wait();
    }
  }

  template <class Request>
  void Send(const std::string& method, const Request& request) {
    Call& call = calls_.emplace_back();
    call.context = As(user_);
    call.stream = stub_->PrepareCall(call.context.get(), method, &queue_);
    call.stream->StartCall(nullptr);
    ASSERT_TRUE(Wait());
    const grpc::Slice slice(request.SerializeAsString());
    call.stream->WriteLast(grpc::ByteBuffer(&slice, 1), grpc::WriteOptions(), nullptr);
    ASSERT_TRUE(Wait());
  }

  // Each call's first answer and its end, read as they come.
  std::vector<Answer> ReadAll() {
    std::vector<grpc::ByteBuffer> buffers(calls_.size());
    for (size_t i = 0; i < calls_.size(); ++i) calls_[i].stream->Read(&buffers[i], &buffers[i]);
    std::vector<Answer> answers(calls_.size());
    for (size_t read = 0; read < calls_.size(); ++read) {
      void* tag = nullptr;
      bool ok = false;
      EXPECT_TRUE(queue_.Next(&tag, &ok));
      if (!ok) continue;
      grpc::Slice whole;
      EXPECT_TRUE(static_cast<grpc::ByteBuffer*>(tag)->DumpToSingleSlice(&whole).ok());
      const size_t index = static_cast<grpc::ByteBuffer*>(tag) - buffers.data();
      EXPECT_TRUE(answers[index].job.ParseFromArray(whole.begin(), static_cast<int>(whole.size())));
    }
    for (size_t i = 0; i < calls_.size(); ++i) {
      calls_[i].read = true;
      calls_[i].stream->Finish(&answers[i].end, nullptr);
      Wait();
    }
    return answers;
  }

 private:
  struct Call {
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
    bool read = false;
  };

  bool Wait() {
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue_.Next(&tag, &ok));
    return ok;
  }

  const std::string user_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericStub> stub_;
  std::vector<Call> calls_;
};

class UnreadAnswersTest : public ServiceTest {
 protected:
  void SetUp() override {
    options_.request_observer = [this](std::string_view method, int code) {
      if (code == 0 && (method == kGetJob || method == kPauseJob)) ++answered_;
    };
    ServiceTest::SetUp();
    v1::CreateJobRequest request = CreateRequest();
    std::string* const yaml = request.mutable_job()->mutable_file()->mutable_yaml();
    while (yaml->size() < 1'000'000) yaml->append("# what is in the file for people\n");
    file_bytes_ = yaml->size();
    v1::Job job;
    const grpc::Status status = jobs_->CreateJob(As("anna").get(), request, &job);
    ASSERT_TRUE(status.ok()) << status.error_message();
    name_ = job.name();
    asked_before_ = authenticator_.asked;
  }

  template <class Request>
  Request Full() const {
    Request request;
    request.set_name(name_);
    request.set_view(v1::JOB_VIEW_FULL);
    return request;
  }
  std::unique_ptr<Pipeline> Connect() {
    return std::make_unique<Pipeline>(options_.listen[0], "anna");
  }
  // Until the daemon has looked at that many calls.
  void WaitUntilAsked(size_t calls) {
    WaitUntil([&] { return authenticator_.asked >= asked_before_ + static_cast<int>(calls); });
  }
  void ExpectAnotherIsAnswered() {
    v1::Job job;
    EXPECT_EQ(CodeAndReason(jobs_->GetJob(As("root").get(), Full<v1::GetJobRequest>(), &job)),
              "OK");
    EXPECT_EQ(job.file().yaml().size(), file_bytes_);
  }

  std::atomic<int> answered_{0};
  std::string name_;
  size_t file_bytes_ = 0;
  int asked_before_ = 0;
};

TEST_F(UnreadAnswersTest, OfUnaryCallsAreBounded) {
  std::vector<std::unique_ptr<Pipeline>> pipelines;
  for (int i = 0; i < 6; ++i) {
    pipelines.push_back(Connect());
    for (int j = 0; j < 50; ++j) pipelines.back()->Send(kGetJob, Full<v1::GetJobRequest>());
  }
  WaitUntilAsked(300);
  EXPECT_GE(answered_, 8);
  EXPECT_LE(answered_, 40);
  EXPECT_LE(server_->unsent_bytes(), options_.answers.caller_bytes_max);
  ExpectAnotherIsAnswered();
  pipelines.clear();
  WaitUntil([this] { return server_->unsent_bytes() == 0; });
}

TEST_F(UnreadAnswersTest, AConnectionHasAPartOfThem) {
  const auto pipeline = Connect();
  for (int i = 0; i < 100; ++i) pipeline->Send(kGetJob, Full<v1::GetJobRequest>());
  WaitUntilAsked(100);
  EXPECT_LE(answered_, 12);
  EXPECT_LE(server_->unsent_bytes(), options_.answers.connection_bytes_max);
}

TEST_F(UnreadAnswersTest, OfCallsThatWaitForADiskAreBounded) {
  const auto pipeline = Connect();
  Move(name_.substr(5), JobState::kPreparing);
  Move(name_.substr(5), JobState::kRunning);
  for (int i = 0; i < 100; ++i) pipeline->Send(kPauseJob, Full<v1::PauseJobRequest>());
  WaitUntilAsked(100);
  // They are taken in the order of their coming: when this one is answered, all were that may be.
  v1::Job job;
  EXPECT_EQ(CodeAndReason(jobs_->PauseJob(As("root").get(), Full<v1::PauseJobRequest>(), &job)),
            "OK");
  EXPECT_LE(answered_, 13);
  WaitUntil([this] { return server_->unsent_bytes() <= options_.answers.connection_bytes_max; });
}

TEST_F(UnreadAnswersTest, WhoSendsAheadAndReadsLaterGetsThemAll) {
  const auto pipeline = Connect();
  for (int i = 0; i < 60; ++i) {
    pipeline->Send(kGetJob, Full<v1::GetJobRequest>());
    pipeline->Send(kPauseJob, Full<v1::PauseJobRequest>());  // of a job that does not run
  }
  WaitUntilAsked(120);
  const std::vector<Answer> answers = pipeline->ReadAll();
  for (size_t i = 0; i < answers.size(); ++i) {
    EXPECT_EQ(CodeAndReason(answers[i].end),
              i % 2 == 0 ? "OK" : "FAILED_PRECONDITION ILLEGAL_TRANSITION")
        << i;
    EXPECT_EQ(answers[i].job.file().yaml().size(), i % 2 == 0 ? file_bytes_ : 0) << i;
  }
  WaitUntil([this] { return server_->unsent_bytes() == 0; });
}

TEST_F(UnreadAnswersTest, OfStreamsAreBoundedAndTheyGoOn) {
  const auto pipeline = Connect();
  for (int i = 0; i < 50; ++i) pipeline->Send(kWatchJob, Full<v1::WatchJobRequest>());
  WaitUntilAsked(50);
  WaitUntil([this] { return server_->streams() == 50; });
  // When this one has its first message all others had their turns.
  const auto reading = As("anna");
  const auto watch = jobs_->WatchJob(reading.get(), Full<v1::WatchJobRequest>());
  v1::WatchJobResponse message;
  ASSERT_TRUE(watch->Read(&message)) << "on another connection of the same user";
  EXPECT_EQ(message.job().file().yaml().size(), file_bytes_);
  EXPECT_LE(server_->unsent_bytes(), size_t{10} << 20);
  reading->TryCancel();
  watch->Finish();
}

TEST_F(UnreadAnswersTest, MoreThanMayWaitAreRefused) {
  StopDaemon();
  options_.answers.waiting_max = 5;
  StartDaemon();
  const auto pipeline = Connect();
  for (int i = 0; i < 40; ++i) pipeline->Send(kGetJob, Full<v1::GetJobRequest>());
  WaitUntilAsked(40);
  std::map<std::string, int> ends;
  for (const Answer& answer : pipeline->ReadAll()) ++ends[CodeAndReason(answer.end)];
  EXPECT_GE(ends["OK"], 5);
  EXPECT_GE(ends["RESOURCE_EXHAUSTED ANSWERS_UNREAD"], 1);
  EXPECT_EQ(ends.size(), 2u);
}

TEST_F(UnreadAnswersTest, DoNotKeepTheDaemonFromStopping) {
  const auto pipeline = Connect();
  for (int i = 0; i < 40; ++i) pipeline->Send(kGetJob, Full<v1::GetJobRequest>());
  for (int i = 0; i < 40; ++i) pipeline->Send(kWatchJob, Full<v1::WatchJobRequest>());
  WaitUntilAsked(80);
  server_->Stop(std::chrono::milliseconds(100));
  EXPECT_EQ(server_->unsent_bytes(), 0u);
}

TEST_F(UnreadAnswersTest, AnswersHaveTheFileOnlyIfItIsAskedFor) {
  v1::GetJobRequest get;
  get.set_name(name_);
  v1::Job job;
  ASSERT_EQ(CodeAndReason(jobs_->GetJob(As("anna").get(), get, &job)), "OK");
  EXPECT_FALSE(job.has_file());
  EXPECT_EQ(job.display_name(), "demo");
  get.set_view(v1::JOB_VIEW_BASIC);
  ASSERT_EQ(CodeAndReason(jobs_->GetJob(As("anna").get(), get, &job)), "OK");
  EXPECT_FALSE(job.has_file());
  get.set_view(static_cast<v1::JobView>(7));
  EXPECT_EQ(CodeAndReason(jobs_->GetJob(As("anna").get(), get, &job)),
            "INVALID_ARGUMENT INVALID_FIELD");

  v1::CreateJobRequest create = CreateRequest("another");
  ASSERT_EQ(CodeAndReason(jobs_->CreateJob(As("anna").get(), create, &job)), "OK");
  EXPECT_FALSE(job.has_file());
  create.set_view(v1::JOB_VIEW_FULL);
  ASSERT_EQ(CodeAndReason(jobs_->CreateJob(As("anna").get(), create, &job)), "OK");
  EXPECT_EQ(job.file().yaml(), create.job().file().yaml());

  for (const v1::JobView view : {v1::JOB_VIEW_UNSPECIFIED, v1::JOB_VIEW_FULL}) {
    v1::WatchJobRequest request;
    request.set_name(name_);
    request.set_view(view);
    const auto context = As("anna");
    const auto watch = jobs_->WatchJob(context.get(), request);
    v1::WatchJobResponse message;
    ASSERT_TRUE(watch->Read(&message));
    EXPECT_EQ(message.job().has_file(), view == v1::JOB_VIEW_FULL);
    context->TryCancel();
    watch->Finish();
  }
}

}  // namespace
}  // namespace megatrain
