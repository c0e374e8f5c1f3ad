// The streams of a job, over a real connection.
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "server/api/job_streams.h"
#include "server/manager/job_table.h"
#include "tests/server/api/streams_fixture.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::Gt;

// ---- WatchJob ----

// "job STATE", "event N STATE", "heartbeat", "missed": what a watch says, heartbeats left out.
std::vector<std::string> ReadWatch(grpc::ClientReader<v1::WatchJobResponse>* reader, size_t count) {
  std::vector<std::string> said;
  v1::WatchJobResponse message;
  while (said.size() < count && reader->Read(&message)) {
    if (message.has_job()) {
      said.push_back("job " + v1::Job::State_Name(message.job().state()));
    } else if (message.has_event()) {
      said.push_back(absl::StrCat("event ", message.event().sequence(), " ",
                                  v1::Job::State_Name(message.event().to_state())));
    } else if (message.has_missed()) {
      said.push_back("missed");
    }
  }
  return said;
}

TEST_F(StreamsTest, AWatchTellsTheJobThenItsEventsThenWhatHappens) {
  const std::string id = Create();
  Move(id, JobState::kPreparing);
  v1::WatchJobRequest request;
  request.set_name("jobs/" + id);
  const auto context = As("anna");
  const auto reader = jobs_->WatchJob(context.get(), request);
  EXPECT_THAT(ReadWatch(reader.get(), 3),
              ElementsAre("job PREPARING", "event 1 QUEUED", "event 2 PREPARING"));
  Move(id, JobState::kRunning);
  EXPECT_THAT(ReadWatch(reader.get(), 2), ElementsAre("event 3 RUNNING", "job RUNNING"));
  AddStep(id, 1);
  EXPECT_THAT(ReadWatch(reader.get(), 1), ElementsAre("job RUNNING"));
  Move(id, JobState::kSucceeded);
  EXPECT_THAT(ReadWatch(reader.get(), 9), ElementsAre("event 4 SUCCEEDED", "job SUCCEEDED"));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(StreamsTest, EventsDoNotWaitForTheStreamsPace) {
  StopDaemon();
  options_.streams.pace = options_.streams.heartbeat = std::chrono::hours(1);
  StartDaemon();
  const std::string id = Create();
  Move(id, JobState::kPreparing);
  v1::WatchJobRequest request;
  request.set_name("jobs/" + id);
  const auto context = As("anna");
  const auto reader = jobs_->WatchJob(context.get(), request);
  // Progress is between them if the stream had yet to find that there is no more.
  const auto read_until = [&reader](const std::string& event) {
    while (true) {
      const std::vector<std::string> said = ReadWatch(reader.get(), 1);
      if (said.empty() || said[0] == event) return !said.empty();
    }
  };
  EXPECT_TRUE(read_until("event 2 PREPARING"));
  AddStep(id, 1);
  Move(id, JobState::kRunning);
  EXPECT_TRUE(read_until("event 3 RUNNING"));
  AddStep(id, 2);
  Move(id, JobState::kPausing);
  EXPECT_TRUE(read_until("event 4 PAUSING"));
  context->TryCancel();
  reader->Finish();
}

TEST_F(StreamsTest, AWatchOfAnEndedJobEnds) {
  const std::string id = Create();
  Move(id, JobState::kCancelled);
  v1::WatchJobRequest request;
  request.set_name("jobs/" + id);
  request.set_start_sequence(2);
  const auto context = As("anna");
  const auto reader = jobs_->WatchJob(context.get(), request);
  EXPECT_THAT(ReadWatch(reader.get(), 9), ElementsAre("job CANCELLED", "event 2 CANCELLED"));
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(StreamsTest, AClientThatComesBackLosesNoEvent) {
  const std::string id = Create();
  v1::WatchJobRequest request;
  request.set_name("jobs/" + id);
  {
    const auto context = As("anna");
    const auto reader = jobs_->WatchJob(context.get(), request);
    EXPECT_THAT(ReadWatch(reader.get(), 2), ElementsAre("job QUEUED", "event 1 QUEUED"));
    context->TryCancel();
    reader->Finish();
  }
  Move(id, JobState::kPreparing);
  StopDaemon();
  StartDaemon();  // which puts the job back in the queue
  request.set_start_sequence(2);
  const auto context = As("anna");
  const auto reader = jobs_->WatchJob(context.get(), request);
  EXPECT_THAT(ReadWatch(reader.get(), 3),
              ElementsAre("job QUEUED", "event 2 PREPARING", "event 3 QUEUED"));
  context->TryCancel();
  reader->Finish();
}

TEST_F(StreamsTest, StartsThatAreNotThereAreRefused) {
  const std::string id = Create();
  for (const int64_t start : {int64_t{-1}, int64_t{3}, int64_t{1} << 60}) {
    v1::WatchJobRequest watch;
    watch.set_name("jobs/" + id);
    watch.set_start_sequence(start);
    const auto context = As("anna");
    const auto reader = jobs_->WatchJob(context.get(), watch);
    EXPECT_THAT(ReadWatch(reader.get(), 1), ElementsAre());
    EXPECT_EQ(CodeAndReason(reader->Finish()), "INVALID_ARGUMENT INVALID_FIELD") << start;

    Steps steps = StreamSteps(id, start, true);
    EXPECT_FALSE(steps.Read());
    EXPECT_EQ(CodeAndReason(steps.reader->Finish()), "INVALID_ARGUMENT INVALID_FIELD") << start;
  }
}

TEST(WatchSourceTest, EventsThatAreNotKeptAnyMoreAreToldAsARange) {
  JobTable table;
  Job job;
  job.id = "a1";
  job.number = 1;
  std::vector<JobEvent> events(kJobEventsKept + 5);
  for (size_t i = 0; i < events.size(); ++i) events[i].sequence = static_cast<int64_t>(i) + 1;
  table.Put(job, events);
  const auto source = NewWatchSource("a1", table.Watch("a1", 1, [] {}), 1, v1::JOB_VIEW_BASIC);
  v1::WatchJobResponse message;
  ASSERT_EQ(*source->Next(&message), StreamNext::kMessage);
  EXPECT_TRUE(message.has_job());
  message.Clear();
  ASSERT_EQ(*source->Next(&message), StreamNext::kMessage);
  EXPECT_EQ(message.missed().first_sequence(), 1);
  EXPECT_EQ(message.missed().last_sequence(), 5);
  EXPECT_EQ(source->next_sequence(), 6);
  message.Clear();
  ASSERT_EQ(*source->Next(&message), StreamNext::kMessage);
  EXPECT_EQ(message.event().sequence(), 6);
  EXPECT_EQ(source->next_sequence(), 7);
}

// A file may have a MiB, and a job makes steps for weeks.
TEST(WatchSourceTest, OnlyTheFirstMessageHasTheFile) {
  JobTable table;
  Job job;
  job.id = "a1";
  job.number = 1;
  job.file = std::make_shared<const JobFile>(JobFile{"name: demo", "job.yaml", {}, ""});
  std::vector<JobEvent> events(1);
  events[0].sequence = 1;
  table.Put(job, events);
  const auto source = NewWatchSource("a1", table.Watch("a1", 1, [] {}), 0, v1::JOB_VIEW_FULL);
  EXPECT_EQ(source->next_sequence(), 1);
  v1::WatchJobResponse message;
  ASSERT_EQ(*source->Next(&message), StreamNext::kMessage);
  EXPECT_EQ(message.job().file().yaml(), "name: demo");
  while (*source->Next(&message) == StreamNext::kMessage) {
  }
  job.version = 2;
  job.step = 7;
  table.Put(job, {});
  message.Clear();
  ASSERT_EQ(*source->Next(&message), StreamNext::kMessage);
  EXPECT_EQ(message.job().progress().step(), 7);
  EXPECT_FALSE(message.job().has_file());
}

// ---- Step metrics and logs ----

TEST_F(StreamsTest, WithoutFollowAStreamEndsAtTheNewest) {
  const std::string id = Running();
  for (int64_t step = 1; step <= 250; ++step) AddStep(id, step);
  Steps steps = StreamSteps(id, 0, false);
  while (steps.Read()) {
  }
  EXPECT_TRUE(steps.reader->Finish().ok());
  EXPECT_EQ(steps.steps, UpTo(250));
  Steps none = StreamSteps(id, 251, false);
  EXPECT_FALSE(none.Read());
  EXPECT_TRUE(none.reader->Finish().ok());
}

TEST_F(StreamsTest, AFollowerSeesEveryStepAndTheEnd) {
  const std::string id = Running();
  AddStep(id, 1);
  Steps steps = StreamSteps(id, 1, true);
  std::thread trainer([&] {
    for (int64_t step = 2; step <= 500; ++step) AddStep(id, step);
    Move(id, JobState::kSucceeded);
  });
  while (steps.Read()) {
  }
  trainer.join();
  EXPECT_TRUE(steps.reader->Finish().ok());
  EXPECT_EQ(steps.steps, UpTo(500));
  EXPECT_EQ(steps.sequences, UpTo(500));
  EXPECT_EQ(steps.missed, 0);
}

TEST_F(StreamsTest, AClientThatIsCutOffAgainAndAgainLosesNoStep) {
  const std::string id = Running();
  std::thread trainer([&] {
    for (int64_t step = 1; step <= 300; ++step) AddStep(id, step);
    Move(id, JobState::kSucceeded);
  });
  std::vector<int64_t> seen;
  for (int64_t next = 1; seen.size() < 300;) {
    Steps steps = StreamSteps(id, next, true);
    for (int reads = 0; reads < 3 && steps.Read(); ++reads) {
    }
    steps.context->TryCancel();
    steps.reader->Finish();
    seen.insert(seen.end(), steps.steps.begin(), steps.steps.end());
    next = steps.next;
  }
  trainer.join();
  EXPECT_EQ(seen, UpTo(300));
}

TEST_F(StreamsTest, StepsThatAJobFellBackFromAreToldToReadersOfAnyTime) {
  const std::string id = Running();
  for (int64_t step = 1; step <= 5; ++step) AddStep(id, step);
  Steps early = StreamSteps(id, 1, true);
  while (early.steps.size() < 5) ASSERT_TRUE(early.Read());
  ASSERT_TRUE(Records(id)->FallBack(3).ok());
  for (int64_t step = 4; step <= 6; ++step) AddStep(id, step);
  Move(id, JobState::kSucceeded);
  while (early.Read()) {
  }
  Steps late = StreamSteps(id, 1, false);
  while (late.Read()) {
  }
  for (Steps* steps : {&early, &late}) {
    EXPECT_EQ(steps->fell_back, 1);
    EXPECT_EQ(steps->steps, UpTo(6));
    EXPECT_THAT(steps->sequences, ElementsAre(1, 2, 3, 4, 5, 7, 8, 9));
    EXPECT_TRUE(steps->reader->Finish().ok());
  }
}

TEST_F(StreamsTest, AQuietStreamHasHeartbeats) {
  const std::string id = Running();
  Steps steps = StreamSteps(id, 1, true);
  v1::StreamStepMetricsResponse message;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(steps.reader->Read(&message));
    EXPECT_TRUE(message.has_heartbeat());
    EXPECT_EQ(message.heartbeat().next_sequence(), 1);
    EXPECT_THAT(message.heartbeat().time().seconds(), Gt(0));
  }
  steps.context->TryCancel();
  steps.reader->Finish();
}

TEST_F(StreamsTest, TheEndOfAJobIsFoundBetweenHeartbeats) {
  StopDaemon();
  options_.streams.heartbeat = std::chrono::hours(1);
  StartDaemon();
  const std::string id = Running();
  Steps steps = StreamSteps(id, 1, true);
  ASSERT_TRUE(steps.Read()) << "the heartbeat that says that this is all";
  Move(id, JobState::kSucceeded);
  EXPECT_FALSE(steps.Read());
  EXPECT_TRUE(steps.reader->Finish().ok());
}

TEST_F(StreamsTest, LogLinesComeAsTheyWereWritten) {
  const std::string id = Create();
  AddLine(id, "loading the model");
  AddLine(id, "a line with \"quotes\", a \xFF byte and\nan end");
  Move(id, JobState::kCancelled);
  v1::StreamLogsRequest request;
  request.set_name("jobs/" + id);
  request.set_follow(true);
  const auto context = As("anna");
  const auto reader = jobs_->StreamLogs(context.get(), request);
  std::vector<v1::LogLine> lines;
  v1::StreamLogsResponse message;
  while (reader->Read(&message)) {
    for (const v1::LogLine& line : message.batch().lines()) lines.push_back(line);
  }
  EXPECT_TRUE(reader->Finish().ok());
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].sequence(), 1);
  EXPECT_EQ(lines[0].text(), "loading the model");
  EXPECT_TRUE(lines[0].has_time());
  EXPECT_THAT(lines[1].text(), testing::HasSubstr("a line with \"quotes\""));
}

TEST_F(StreamsTest, LongLinesAreSentInMessagesThatClientsTake) {
  const std::string id = Create();
  for (int i = 0; i < 100; ++i) AddLine(id, std::string(100000, 'x'));
  v1::StreamLogsRequest request;
  request.set_name("jobs/" + id);
  const auto context = As("anna");
  const auto reader = jobs_->StreamLogs(context.get(), request);
  int lines = 0;
  v1::StreamLogsResponse message;
  while (reader->Read(&message)) {
    lines += message.batch().lines_size();
    EXPECT_LT(message.ByteSizeLong(), size_t{256} << 10);
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(lines, 100);
}

TEST_F(StreamsTest, AReaderThatDoesNotReadHoldsUpNobodyAndLosesNothing) {
  const std::string id = Running();
  AddStep(id, 1);
  Steps stuck = StreamSteps(id, 1, true);
  while (stuck.steps.empty()) ASSERT_TRUE(stuck.Read());
  constexpr int64_t kSteps = 5000;  // more than connections buffer
  for (int64_t step = 2; step <= kSteps; ++step) AddStep(id, step);
  // The others get everything meanwhile.
  Steps other = StreamSteps(id, 1, true);
  while (static_cast<int64_t>(other.steps.size()) < kSteps) ASSERT_TRUE(other.Read());
  other.context->TryCancel();
  other.reader->Finish();
  Move(id, JobState::kSucceeded);
  while (stuck.Read()) {
  }
  EXPECT_TRUE(stuck.reader->Finish().ok());
  EXPECT_EQ(stuck.steps, UpTo(kSteps));
}

}  // namespace
}  // namespace megatrain
