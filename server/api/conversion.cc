#include "server/api/conversion.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status.h"
#include "server/api/resource_name.h"
#include "server/base/error_reason.h"
#include "server/transport/error_status.h"

namespace megatrain {
namespace {

// Returns true for the times that a google.protobuf.Timestamp may have: the years 1 to 9999.
bool IsSet(absl::Time time) {
  return time >= absl::FromUnixSeconds(-62'135'596'800) &&
         time < absl::FromUnixSeconds(253'402'300'800);
}

template <class Proto>
void SetTime(const std::string& rfc3339, Proto* proto) {
  absl::Time time;
  if (absl::ParseTime(absl::RFC3339_full, rfc3339, &time, nullptr)) {
    *proto->mutable_time() = ToTimestamp(time);
  }
}

void SetItems(const std::vector<PlanReport::Item>& items,
              google::protobuf::RepeatedPtrField<v1::Plan::Item>* protos) {
  for (const PlanReport::Item& item : items) {
    v1::Plan::Item* const proto = protos->Add();
    proto->set_name(item.name);
    proto->set_bytes(item.bytes);
  }
}

}  // namespace

google::protobuf::Timestamp ToTimestamp(absl::Time time) {
  const int64_t seconds = absl::ToUnixSeconds(time);
  google::protobuf::Timestamp proto;
  proto.set_seconds(seconds);
  proto.set_nanos(
      static_cast<int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
  return proto;
}

v1::Job::State ToProto(JobState state) { return static_cast<v1::Job::State>(state); }
v1::Job::Reason ToProto(JobReason reason) { return static_cast<v1::Job::Reason>(reason); }
v1::QueueStatus::Waiting ToProto(WaitingReason reason) {
  return static_cast<v1::QueueStatus::Waiting>(reason);
}

void ToProto(const Job& job, v1::JobView view, v1::Job* proto) {
  // A job that was only validated has no id.
  if (!job.id.empty()) proto->set_name(JobName(job.id));
  if (view == v1::JOB_VIEW_FULL && job.file != nullptr) {
    v1::JobFile* const file = proto->mutable_file();
    file->set_yaml(ValidUtf8(job.file->yaml));
    file->set_file_name(ValidUtf8(job.file->file_name));
    for (const std::string& each : job.file->overrides) file->add_overrides(ValidUtf8(each));
    file->set_base_directory(ValidUtf8(job.file->base_directory));
  }
  proto->set_priority(job.priority);
  proto->set_display_name(ValidUtf8(job.display_name));
  proto->set_state(ToProto(job.state));
  proto->set_reason(ToProto(job.reason));
  proto->set_reason_text(ValidUtf8(job.reason_text));
  proto->set_user(ValidUtf8(job.user));
  if (IsSet(job.created)) *proto->mutable_create_time() = ToTimestamp(job.created);
  if (IsSet(job.updated)) *proto->mutable_update_time() = ToTimestamp(job.updated);
  if (IsSet(job.started)) *proto->mutable_start_time() = ToTimestamp(job.started);
  if (IsSet(job.ended)) *proto->mutable_end_time() = ToTimestamp(job.ended);
  proto->set_attempt_count(job.attempts);

  v1::JobProgress* const progress = proto->mutable_progress();
  progress->set_step(job.step);
  progress->set_total_steps(job.total_steps);
  progress->set_checkpoint_step(job.checkpoint_step);
  progress->set_step_seconds(job.step_seconds);
  if (job.last_step.has_value()) ToProto(*job.last_step, progress->mutable_last_step());

  if (job.state == JobState::kQueued) {
    v1::QueueStatus* const queue = proto->mutable_queue();
    queue->set_position(job.queue.position);
    queue->set_waiting(ToProto(job.queue.waiting));
    queue->set_text(ValidUtf8(job.queue.text));
    if (job.queue.predicted_start.has_value() && IsSet(*job.queue.predicted_start)) {
      *queue->mutable_predicted_start_time() = ToTimestamp(*job.queue.predicted_start);
    }
  }

  if (job.spec != nullptr) {
    v1::JobSummary* const summary = proto->mutable_summary();
    summary->set_model_path(ValidUtf8(job.spec->model.path));
    summary->set_precision(job.spec->training.precision == Precision::kBf16 ? "bf16" : "fp32");
    summary->set_sequence_length(job.spec->data.sequence_length);
    summary->set_global_batch(job.spec->training.global_batch);
    summary->set_checkpoint_directory(ValidUtf8(job.spec->checkpoint.directory));
    summary->set_output_directory(ValidUtf8(job.spec->output.directory));
    summary->set_own_checkpoint_directory(job.own_checkpoints);
  }
  proto->set_pool_bytes(job.pool_bytes);
  proto->set_host_memory_kept(job.host_retained);
  proto->set_version(job.version);
  proto->mutable_allow_change()->Assign(job.allow_change.begin(), job.allow_change.end());
  if (IsActive(job.state) || job.host_retained) {
    proto->mutable_devices()->Assign(job.devices.begin(), job.devices.end());
  }
}

void ToProto(const JobEvent& event, v1::JobEvent* proto) {
  proto->set_sequence(event.sequence);
  *proto->mutable_time() = ToTimestamp(event.time);
  if (event.from.has_value()) proto->set_from_state(ToProto(*event.from));
  proto->set_to_state(ToProto(event.to));
  proto->set_reason(ToProto(event.reason));
  proto->set_text(ValidUtf8(event.text));
}

void ToProto(const std::string& job_id, const JobCheckpoint& checkpoint, v1::Checkpoint* proto) {
  proto->set_name(CheckpointName(job_id, checkpoint.step));
  proto->set_step(checkpoint.step);
  proto->set_directory(ValidUtf8(checkpoint.directory));
  proto->set_bytes(checkpoint.bytes);
  if (IsSet(checkpoint.changed)) *proto->mutable_create_time() = ToTimestamp(checkpoint.changed);
  if (checkpoint.best_eval_loss.has_value()) proto->set_best_eval_loss(*checkpoint.best_eval_loss);
}

namespace {

void ToProto(const Rewards& rewards, v1::Rewards* proto) {
  proto->set_chosen(rewards.chosen);
  proto->set_rejected(rewards.rejected);
  proto->set_margins(rewards.margins);
  proto->set_accuracies(rewards.accuracies);
}

void ToProto(const LaneSeconds& lanes, v1::LaneSeconds* proto) {
  proto->set_h2d(lanes.h2d);
  proto->set_compute(lanes.compute);
  proto->set_d2h(lanes.d2h);
  proto->set_update(lanes.update);
  proto->set_io(lanes.io);
  proto->set_device_update(lanes.device_update);
  proto->set_collective(lanes.collective);
}

}  // namespace

void ToProto(const StepRecord& record, v1::StepMetrics* proto) {
  proto->set_step(record.step);
  proto->set_loss(record.loss);
  proto->set_gradient_norm(record.gradient_norm);
  proto->set_learning_rate(record.learning_rate);
  proto->set_tokens(record.tokens);
  proto->set_input_tokens(record.input_tokens);
  proto->set_total_tokens(record.total_tokens);
  proto->set_step_seconds(record.step_seconds);
  proto->set_tokens_per_second(record.tokens_per_second);
  proto->set_model_flops_per_second(record.model_flops_per_second);
  proto->set_h2d_bytes(record.h2d_bytes);
  proto->set_d2h_bytes(record.d2h_bytes);
  ToProto(record.lane_busy_seconds, proto->mutable_lane_busy_seconds());
  if (record.spread.has_value()) {
    proto->set_ranks(record.spread->ranks);
    proto->set_slowest_rank(record.spread->slowest.compute);
    for (const auto& lane : kNamedLanes<int64_t>) {
      (*proto->mutable_lane_slowest_ranks())[lane.name] = record.spread->slowest.*lane.value;
    }
    ToProto(record.spread->mean, proto->mutable_lane_mean_seconds());
  }
  proto->set_matmul_seconds(record.matmul_seconds);
  proto->set_forward_seconds(record.forward_seconds);
  proto->set_host_bytes(record.host_bytes);
  proto->set_device_bytes(record.device_bytes);
  if (record.eval_loss.has_value()) proto->set_eval_loss(*record.eval_loss);
  proto->mutable_eval_losses()->insert(record.eval_losses.begin(), record.eval_losses.end());
  if (record.rewards.has_value()) ToProto(*record.rewards, proto->mutable_rewards());
  if (record.eval_rewards.has_value()) ToProto(*record.eval_rewards, proto->mutable_eval_rewards());
  if (record.router.has_value()) {
    v1::Router* const router = proto->mutable_router();
    router->mutable_load()->Assign(record.router->load.begin(), record.router->load.end());
    router->set_busiest(record.router->busiest);
    router->set_entropy(record.router->entropy);
    if (record.router->auxiliary_loss.has_value()) {
      router->set_auxiliary_loss(*record.router->auxiliary_loss);
    }
  }
  SetTime(record.time, proto);
}

namespace {

void ToProto(const PredictedStep& predicted, v1::PredictedStep* proto) {
  proto->set_step_seconds(predicted.step_seconds);
  proto->set_tokens_per_second(predicted.tokens_per_second);
  ToProto(predicted.lane_busy_seconds, proto->mutable_lane_busy_seconds());
  v1::PredictedStep::Lane lane = v1::PredictedStep::LANE_UNSPECIFIED;
  v1::PredictedStep::Lane_Parse(absl::AsciiStrToUpper(predicted.bound_by), &lane);
  proto->set_bound_by(lane);
}

}  // namespace

void ToProto(const PlanReport& report, v1::Plan* proto) {
  proto->set_fits(report.fits);
  proto->set_misfit(ValidUtf8(report.misfit));
  proto->set_parameters(report.parameters);
  SetItems(report.host, proto->mutable_host());
  proto->set_host_bytes(report.host_bytes);
  if (report.host_limit_bytes.has_value()) proto->set_host_limit_bytes(*report.host_limit_bytes);
  SetItems(report.device, proto->mutable_device());
  proto->set_device_bytes(report.device_bytes);
  proto->set_device_limit_bytes(report.device_limit_bytes);
  proto->set_checkpoint_bytes(report.checkpoint_bytes);
  proto->set_devices(report.devices);
  for (const PlanReport::Place& place : report.places) {
    v1::Plan::Place* const to = proto->add_places();
    to->set_device(place.name);
    to->set_free_bytes(place.bytes);
    to->set_fits(place.fits);
    to->set_planned(place.planned);
  }
  proto->set_micro_batches(report.micro_batches);
  proto->set_micro_batches_per_sweep(report.choice.micro_batches_per_sweep);
  proto->set_table(ValidUtf8(report.table));
  if (report.choice.predicted.step_seconds > 0) {
    ToProto(report.choice.predicted, proto->mutable_predicted_step());
  }
}

void ToProto(const absl::Status& refusal, v1::UserLimit* proto) {
  proto->set_message(ValidUtf8(std::string(refusal.message())));
  const std::optional<ErrorReasonInfo> info = ReasonOf(refusal);
  if (!info.has_value()) return;
  v1::ErrorReason reason = v1::ERROR_REASON_UNSPECIFIED;
  v1::ErrorReason_Parse(info->reason, &reason);
  proto->set_reason(reason);
  for (const auto& [key, value] : info->metadata) {
    int64_t number = 0;
    if (key == "limit") proto->set_limit(value);
    if (key == "value" && absl::SimpleAtoi(value, &number)) proto->set_value(number);
  }
}

absl::Status ReadLogLine(std::string_view json, v1::LogLine* proto) {
  const absl::StatusOr<nlohmann::json> line = ParseJson(json, "log line");
  if (!line.ok()) return absl::DataLossError(line.status().message());
  if (!line->is_object()) return absl::DataLossError("log line: expects an object");
  const auto text = [&line](const char* key) {
    const auto found = line->find(key);
    return found != line->end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  SetTime(text("time"), proto);
  proto->set_text(text("text"));
  return absl::OkStatus();
}

JobFile FromProto(const v1::JobFile& proto) {
  JobFile file;
  file.yaml = proto.yaml();
  file.file_name = proto.file_name();
  file.overrides.assign(proto.overrides().begin(), proto.overrides().end());
  file.base_directory = proto.base_directory();
  return file;
}

}  // namespace megatrain
