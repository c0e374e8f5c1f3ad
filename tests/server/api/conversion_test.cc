#include "server/api/conversion.h"

#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "server/base/error_reason.h"
#include "server/transport/error_status.h"

namespace megatrain {
namespace {

using ::google::protobuf::util::MessageDifferencer;

StepRecord MakeRecord() {
  StepRecord record;
  record.step = 7;
  record.loss = 2.5;
  record.gradient_norm = 0.1;
  record.learning_rate = 3e-4;
  record.tokens = 100;
  record.input_tokens = 120;
  record.total_tokens = 840;
  record.step_seconds = 0.25;
  record.tokens_per_second = 480;
  record.model_flops_per_second = 1e9;
  record.h2d_bytes = 1000;
  record.d2h_bytes = 2000;
  record.lane_busy_seconds = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6};
  record.matmul_seconds = 0.15;
  record.forward_seconds = 0.05;
  record.host_bytes = int64_t{1} << 40;
  record.device_bytes = 1 << 20;
  record.time = "2024-05-01T12:00:00.123Z";
  return record;
}

TEST(ConversionTest, EveryStateAndReasonHasItsNameInTheApi) {
  ASSERT_EQ(AllJobStates().size(), v1::Job::State_ARRAYSIZE - 1);
  for (const JobState state : AllJobStates()) {
    EXPECT_EQ(v1::Job::State_Name(ToProto(state)), JobStateName(state));
  }
  for (int i = 1; i < v1::Job::Reason_ARRAYSIZE; ++i) {
    const auto reason = static_cast<JobReason>(i);
    EXPECT_EQ(v1::Job::Reason_Name(ToProto(reason)), JobReasonName(reason));
    EXPECT_EQ(ParseJobReason(JobReasonName(reason)), reason);
  }
  EXPECT_EQ(ToProto(JobReason::kNone), v1::Job::REASON_UNSPECIFIED);
  EXPECT_EQ(JobReasonName(JobReason::kNone), "NONE");
  EXPECT_EQ(ParseJobReason("NONE"), JobReason::kNone);
  EXPECT_EQ(ParseJobReason("REASON_UNSPECIFIED"), std::nullopt);
  EXPECT_EQ(ToProto(WaitingReason::kNone), v1::QueueStatus::WAITING_UNSPECIFIED);
}

TEST(ConversionTest, StepsAreTheSameFromMemoryAndFromTheLog) {
  StepRecord record = MakeRecord();
  for (const bool evaluated : {false, true}) {
    if (evaluated) {
      record.eval_loss = 2.25;
      record.eval_losses = {{"chat", 2.0}, {"code", 2.5}};
      record.rewards = {{0.5, -0.25, 0.75, 0.875}};
      record.eval_rewards = {{0.25, -0.5, 0.75, 0.5}};
      record.router = {{0.25, 0.5, 0.25}, 1.5, 0.875, 2.0};
      record.spread = {{.ranks = 4, .slowest = {.h2d = 1, .compute = 3}, .mean = {.compute = 0.1}}};
    }
    v1::StepMetrics direct, stored;
    ToProto(record, &direct);
    const auto parsed = ParseStepRecord(StepRecordJson(record));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    ToProto(*parsed, &stored);
    EXPECT_TRUE(MessageDifferencer::Equals(direct, stored))
        << direct.DebugString() << stored.DebugString();
    EXPECT_EQ(stored.has_eval_loss(), evaluated);
    EXPECT_EQ(stored.has_slowest_rank(), evaluated);
    if (evaluated) {
      EXPECT_EQ(stored.ranks(), 4);
      EXPECT_EQ(stored.slowest_rank(), 3);
      EXPECT_EQ(stored.lane_slowest_ranks().at("h2d"), 1);
      EXPECT_EQ(stored.lane_mean_seconds().compute(), 0.1);
      EXPECT_EQ(stored.rewards().chosen(), 0.5);
      EXPECT_EQ(stored.rewards().rejected(), -0.25);
      EXPECT_EQ(stored.rewards().margins(), 0.75);
      EXPECT_EQ(stored.rewards().accuracies(), 0.875);
      EXPECT_EQ(stored.eval_rewards().chosen(), 0.25);
      EXPECT_EQ(stored.router().load(1), 0.5);
      EXPECT_EQ(stored.router().busiest(), 1.5);
      EXPECT_EQ(stored.router().entropy(), 0.875);
      EXPECT_EQ(stored.router().auxiliary_loss(), 2);
      EXPECT_EQ(stored.eval_losses().at("code"), 2.5);
    }
    EXPECT_EQ(stored.step(), 7);
    EXPECT_EQ(stored.loss(), 2.5);
    EXPECT_EQ(stored.gradient_norm(), 0.1);
    EXPECT_EQ(stored.learning_rate(), 3e-4);
    EXPECT_EQ(stored.tokens(), 100);
    EXPECT_EQ(stored.input_tokens(), 120);
    EXPECT_EQ(stored.total_tokens(), 840);
    EXPECT_EQ(stored.step_seconds(), 0.25);
    EXPECT_EQ(stored.tokens_per_second(), 480);
    EXPECT_EQ(stored.model_flops_per_second(), 1e9);
    EXPECT_EQ(stored.h2d_bytes(), 1000);
    EXPECT_EQ(stored.d2h_bytes(), 2000);
    EXPECT_EQ(stored.matmul_seconds(), 0.15);
    EXPECT_EQ(stored.forward_seconds(), 0.05);
    EXPECT_EQ(stored.host_bytes(), int64_t{1} << 40);
    EXPECT_EQ(stored.device_bytes(), 1 << 20);
    EXPECT_EQ(stored.lane_busy_seconds().h2d(), 0.1);
    EXPECT_EQ(stored.lane_busy_seconds().compute(), 0.2);
    EXPECT_EQ(stored.lane_busy_seconds().d2h(), 0.3);
    EXPECT_EQ(stored.lane_busy_seconds().update(), 0.4);
    EXPECT_EQ(stored.lane_busy_seconds().io(), 0.5);
    EXPECT_EQ(stored.lane_busy_seconds().device_update(), 0.6);
    EXPECT_EQ(stored.time().seconds(), 1714564800);
    EXPECT_EQ(stored.time().nanos(), 123000000);
  }
  // Every field of the message is filled in.
  v1::StepMetrics all;
  ToProto(record, &all);
  const auto* const fields = v1::StepMetrics::descriptor();
  const auto* const reflection = v1::StepMetrics::GetReflection();
  for (int i = 0; i < fields->field_count(); ++i) {
    const auto* const field = fields->field(i);
    EXPECT_TRUE(field->is_repeated() ? reflection->FieldSize(all, field) > 0
                                     : reflection->HasField(all, field))
        << field->name();
  }
}

TEST(ConversionTest, NumbersThatAreNotFiniteStaySo) {
  StepRecord record = MakeRecord();
  record.loss = std::numeric_limits<double>::quiet_NaN();
  record.gradient_norm = std::numeric_limits<double>::infinity();
  v1::StepMetrics proto;
  const auto parsed = ParseStepRecord(StepRecordJson(record));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ToProto(*parsed, &proto);
  EXPECT_TRUE(std::isnan(proto.loss()));
  EXPECT_FALSE(std::isfinite(proto.gradient_norm()));
}

TEST(ConversionTest, OtherTextsInALogAreDataLoss) {
  for (const char* text : {"", "x", "[1]", "{\"step\": }"}) {
    EXPECT_EQ(ParseStepRecord(text).status().code(), absl::StatusCode::kDataLoss) << text;
    v1::LogLine line;
    EXPECT_EQ(ReadLogLine(text, &line).code(), absl::StatusCode::kDataLoss) << text;
  }
  EXPECT_EQ(ParseStepRecord("{\"step\": 3}").status().code(), absl::StatusCode::kDataLoss);
}

TEST(ConversionTest, LinesAreWhatWasWritten) {
  v1::LogLine proto;
  ASSERT_TRUE(
      ReadLogLine(R"({"time":"2024-05-01T12:00:00.123Z","text":"two\nlines"})", &proto).ok());
  EXPECT_EQ(proto.text(), "two\nlines");
  EXPECT_EQ(proto.time().seconds(), 1714564800);
  v1::LogLine empty;
  ASSERT_TRUE(ReadLogLine(R"({"time":1})", &empty).ok());
  EXPECT_FALSE(empty.has_time());
  EXPECT_EQ(empty.text(), "");
}

TEST(ConversionTest, JobsOfListsHaveNoFile) {
  Job job;
  job.id = "abc";
  job.display_name = "demo";
  job.user = "anna";
  job.file = std::make_shared<JobFile>(JobFile{"name: demo", "job.yaml", {"a=b"}, "/home/anna"});
  auto spec = std::make_shared<JobSpec>();
  spec->model.path = "/models/tiny";
  spec->training.precision = Precision::kFp32;
  spec->checkpoint.directory = "/state/abc";
  job.spec = spec;
  job.priority = -3;
  job.devices = {"cuda:1"};
  job.allow_change = {"optimizer", "schedule"};
  job.created = absl::FromUnixSeconds(100) + absl::Nanoseconds(5);
  job.queue = {2, WaitingReason::kBehindOthers, "one job is first", absl::FromUnixSeconds(200)};
  v1::Job proto;
  ToProto(job, v1::JOB_VIEW_FULL, &proto);
  EXPECT_EQ(proto.name(), "jobs/abc");
  EXPECT_EQ(proto.file().yaml(), "name: demo");
  EXPECT_EQ(proto.file().overrides(0), "a=b");
  EXPECT_EQ(FromProto(proto.file()), *job.file);
  EXPECT_EQ(proto.priority(), -3);
  EXPECT_TRUE(proto.devices().empty()) << "it waits";
  EXPECT_THAT(proto.allow_change(), ::testing::ElementsAre("optimizer", "schedule"));
  EXPECT_EQ(proto.summary().model_path(), "/models/tiny");
  EXPECT_EQ(proto.summary().precision(), "fp32");
  EXPECT_EQ(proto.create_time().seconds(), 100);
  EXPECT_EQ(proto.create_time().nanos(), 5);
  EXPECT_FALSE(proto.has_start_time());
  EXPECT_FALSE(proto.has_end_time());
  EXPECT_EQ(proto.queue().position(), 2);
  EXPECT_EQ(proto.queue().predicted_start_time().seconds(), 200);

  job.state = JobState::kRunning;
  v1::Job listed;
  ToProto(job, v1::JOB_VIEW_BASIC, &listed);
  EXPECT_FALSE(listed.has_file());
  EXPECT_FALSE(listed.has_queue());
  EXPECT_THAT(listed.devices(), ::testing::ElementsAre("cuda:1"));
}

TEST(ConversionTest, TextsThatAreNotUtf8CanStillBeSent) {
  EXPECT_EQ(ValidUtf8("gr\xC3\xBC\xC3\x9F"), "gr\xC3\xBC\xC3\x9F");
  EXPECT_EQ(ValidUtf8("a\xFFz"), "a?z");
  Job job;
  job.reason_text = "cannot open /data/\xE9t\xE9";
  v1::Job proto, received;
  ToProto(job, v1::JOB_VIEW_FULL, &proto);
  EXPECT_TRUE(received.ParseFromString(proto.SerializeAsString()));
  EXPECT_EQ(received.reason_text(), "cannot open /data/?t?");
}

TEST(ConversionTest, PlansOfTheEngineAreUnderstood) {
  PlanReport report;
  report.fits = false;
  report.table = "host 1\n";
  report.misfit = "host";
  report.host = {{"tiles", 3}, {"slabs", 4}};
  report.host_limit_bytes = 6;
  report.parameters = 11;
  report.host_bytes = 12;
  report.device_bytes = 13;
  report.device_limit_bytes = 14;
  report.checkpoint_bytes = 15;
  report.device = {{"weights", 2}};
  report.devices = 2;
  report.places = {{.number = 1, .name = "cuda:1", .bytes = 5, .fits = true, .planned = false},
                   {.number = 0, .name = "cuda:0", .bytes = 9, .fits = false, .planned = true}};
  report.micro_batches = 4;
  report.choice.micro_batches_per_sweep = 2;
  v1::Plan plan;
  ToProto(report, &plan);
  EXPECT_FALSE(plan.fits());
  EXPECT_EQ(plan.misfit(), "host");
  ASSERT_EQ(plan.host_size(), 2);
  EXPECT_EQ(plan.host(1).name(), "slabs");
  EXPECT_EQ(plan.host(1).bytes(), 4);
  EXPECT_EQ(plan.table(), "host 1\n");
  EXPECT_FALSE(plan.has_predicted_step());
  EXPECT_EQ(plan.host_limit_bytes(), 6);
  EXPECT_EQ(plan.parameters(), 11);
  EXPECT_EQ(plan.host_bytes(), 12);
  EXPECT_EQ(plan.device_bytes(), 13);
  EXPECT_EQ(plan.device_limit_bytes(), 14);
  EXPECT_EQ(plan.checkpoint_bytes(), 15);
  EXPECT_EQ(plan.device(0).bytes(), 2);
  EXPECT_EQ(plan.devices(), 2);
  ASSERT_EQ(plan.places_size(), 2);
  EXPECT_EQ(plan.places(0).device(), "cuda:1");
  EXPECT_EQ(plan.places(0).free_bytes(), 5);
  EXPECT_TRUE(plan.places(0).fits() && !plan.places(0).planned());
  EXPECT_TRUE(!plan.places(1).fits() && plan.places(1).planned());
  EXPECT_EQ(plan.micro_batches(), 4);
  EXPECT_EQ(plan.micro_batches_per_sweep(), 2);
  plan.Clear();
  report.choice.predicted = {
      2.5, 1000, {.h2d = 0.5, .compute = 2, .d2h = 0.25, .update = 1}, "compute"};
  ToProto(report, &plan);
  EXPECT_EQ(plan.predicted_step().step_seconds(), 2.5);
  EXPECT_EQ(plan.predicted_step().tokens_per_second(), 1000);
  EXPECT_EQ(plan.predicted_step().lane_busy_seconds().update(), 1);
  EXPECT_EQ(plan.predicted_step().bound_by(), v1::PredictedStep::COMPUTE);
}

TEST(ConversionTest, ALimitIsNamedWithItsValue) {
  v1::UserLimit limit;
  ToProto(WithReason(absl::FailedPreconditionError("too much"), v1::EXCEEDS_USER_LIMIT,
                     {{"limit", "limits.disk_per_user"}, {"value", "1099511627776"}}),
          &limit);
  EXPECT_EQ(limit.reason(), v1::EXCEEDS_USER_LIMIT);
  EXPECT_EQ(limit.limit(), "limits.disk_per_user");
  EXPECT_EQ(limit.value(), int64_t{1} << 40);
  EXPECT_EQ(limit.message(), "too much");
}

TEST(ConversionTest, ALimitWithoutAReasonHasItsMessageAlone) {
  v1::UserLimit limit;
  ToProto(absl::UnavailableError("the devices are not known"), &limit);
  EXPECT_EQ(limit.message(), "the devices are not known");
  EXPECT_EQ(limit.reason(), v1::ERROR_REASON_UNSPECIFIED);
  EXPECT_EQ(limit.limit(), "");
}

void ExpectAllSet(const google::protobuf::Message& message) {
  const auto* const reflection = message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const auto* const field = message.GetDescriptor()->field(i);
    EXPECT_TRUE(field->is_repeated() ? reflection->FieldSize(message, field) > 0
                                     : reflection->HasField(message, field))
        << field->full_name();
  }
}

TEST(ConversionTest, AnEventIsWhatTheLogHas) {
  JobEvent event = {.sequence = 4,
                    .time = absl::FromUnixSeconds(100),
                    .from = JobState::kRunning,
                    .to = JobState::kPausing,
                    .reason = JobReason::kDiskFull,
                    .text = "no room in /d\xE9"};
  v1::JobEvent proto;
  ToProto(event, &proto);
  ExpectAllSet(proto);
  EXPECT_EQ(proto.sequence(), 4);
  EXPECT_EQ(proto.time().seconds(), 100);
  EXPECT_EQ(proto.from_state(), v1::Job::RUNNING);
  EXPECT_EQ(proto.to_state(), v1::Job::PAUSING);
  EXPECT_EQ(proto.reason(), v1::Job::DISK_FULL);
  EXPECT_EQ(proto.text(), "no room in /d?");
  event.from.reset();
  v1::JobEvent first;
  ToProto(event, &first);
  EXPECT_EQ(first.from_state(), v1::Job::STATE_UNSPECIFIED) << "the job was created";
}

// Also one that is beyond what a timestamp may say, the year 9999.
TEST(ConversionTest, AStartThatIsNotForeseenStaysUnset) {
  const absl::Time end = absl::FromCivil(absl::CivilYear(10000), absl::UTCTimeZone());
  for (const std::optional<absl::Time> start :
       {std::optional<absl::Time>(), std::optional<absl::Time>(absl::InfiniteFuture()),
        std::optional<absl::Time>(end), std::optional<absl::Time>(end - absl::Nanoseconds(1))}) {
    Job job;
    job.queue.predicted_start = start;
    v1::Job proto;
    ToProto(job, v1::JOB_VIEW_BASIC, &proto);
    EXPECT_TRUE(proto.has_queue());
    EXPECT_EQ(proto.queue().has_predicted_start_time(), start.has_value() && *start < end);
  }
}

TEST(ConversionTest, EveryFieldOfAJobIsFilledIn) {
  Job job;
  job.id = job.user = job.display_name = job.reason_text = "x";
  job.reason = JobReason::kUserRequest;
  job.file = std::make_shared<JobFile>(JobFile{"name: demo", "job.yaml", {"a=b"}, "/home/anna"});
  auto spec = std::make_shared<JobSpec>();
  spec->model.path = "/model";
  spec->training.global_batch = 24;
  spec->training.micro_batch = 3;
  spec->data.sequence_length = 512;
  spec->checkpoint.directory = "/checkpoints";
  spec->output.directory = "/output";
  job.spec = spec;
  job.allow_change = {"optimizer"};
  job.devices = {"cpu"};
  job.created = absl::FromUnixSeconds(100);
  job.started = absl::FromUnixSeconds(200);
  job.ended = absl::FromUnixSeconds(300);
  job.updated = absl::FromUnixSeconds(400);
  job.priority = job.attempts = 1;
  job.pool_bytes = job.version = job.step = job.total_steps = job.checkpoint_step = 1;
  job.host_retained = true;
  job.step_seconds = 0.5;
  job.last_step = MakeRecord();
  job.queue = {2, WaitingReason::kBehindOthers, "one is first", absl::FromUnixSeconds(200)};
  v1::Job proto;
  ToProto(job, v1::JOB_VIEW_FULL, &proto);
  ExpectAllSet(proto);
  ExpectAllSet(proto.file());
  ExpectAllSet(proto.progress());
  ExpectAllSet(proto.queue());
  ExpectAllSet(proto.summary());
  EXPECT_EQ(proto.create_time().seconds(), 100);
  EXPECT_EQ(proto.start_time().seconds(), 200);
  EXPECT_EQ(proto.end_time().seconds(), 300);
  EXPECT_EQ(proto.update_time().seconds(), 400);
  EXPECT_EQ(proto.summary().global_batch(), 24);
  EXPECT_EQ(proto.summary().sequence_length(), 512);
  EXPECT_EQ(proto.summary().checkpoint_directory(), "/checkpoints");
  EXPECT_EQ(proto.summary().output_directory(), "/output");
  v1::Checkpoint checkpoint;
  ToProto("abc", JobCheckpoint{20, "/d", 5, absl::FromUnixSeconds(100), 1.5}, &checkpoint);
  ExpectAllSet(checkpoint);
  EXPECT_EQ(checkpoint.name(), "jobs/abc/checkpoints/20");
  EXPECT_EQ(checkpoint.step(), 20);
  EXPECT_EQ(checkpoint.directory(), "/d");
  EXPECT_EQ(checkpoint.bytes(), 5);
  EXPECT_EQ(checkpoint.create_time().seconds(), 100);
  EXPECT_EQ(checkpoint.best_eval_loss(), 1.5);
}

}  // namespace
}  // namespace megatrain
