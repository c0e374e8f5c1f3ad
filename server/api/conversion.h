// Converts the daemon's values to messages of the API, and a JobFile back. Texts that may hold any
// bytes, such as paths, are made valid UTF-8 (ValidUtf8). REQUIRES: messages to fill are empty.
#ifndef MEGATRAIN_SERVER_API_CONVERSION_H_
#define MEGATRAIN_SERVER_API_CONVERSION_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/engine.h"
#include "engine/trace/step_record.h"
#include "google/protobuf/timestamp.pb.h"
#include "megatrain/v1/job.pb.h"
#include "megatrain/v1/plan.pb.h"
#include "megatrain/v1/step_metrics.pb.h"
#include "server/jobs/job.h"
#include "server/manager/job_manager.h"

namespace megatrain {

// REQUIRES: `time` is neither absl::InfinitePast() nor absl::InfiniteFuture().
google::protobuf::Timestamp ToTimestamp(absl::Time time);

// Return the value of the API's enum that has the same number.
v1::Job::State ToProto(JobState state);
v1::Job::Reason ToProto(JobReason reason);
v1::QueueStatus::Waiting ToProto(WaitingReason reason);

// Sets `file` in JOB_VIEW_FULL only, `queue` for a QUEUED job only, and `devices` for a job that is
// active (IsActive) or keeps its host memory. A time that is not known stays unset. So does
// `summary` if Job::spec is null.
void ToProto(const Job& job, v1::JobView view, v1::Job* proto);
void ToProto(const JobEvent& event, v1::JobEvent* proto);
void ToProto(const std::string& job_id, const JobCheckpoint& checkpoint, v1::Checkpoint* proto);
void ToProto(const StepRecord& record, v1::StepMetrics* proto);
// Leaves `predicted_step` unset if the report predicts no time.
void ToProto(const PlanReport& report, v1::Plan* proto);
// Converts an error of CheckUserLimits. Sets the message alone if the error has no reason.
void ToProto(const absl::Status& refusal, v1::UserLimit* proto);

// Reads the time and the text of a record of a job's log, which is JSON (JobRecords::AddLine).
// Returns DataLoss if `json` is no JSON object. A field stays empty if its key is missing or its
// value is not a string, and the time also if it is not RFC 3339.
absl::Status ReadLogLine(std::string_view json, v1::LogLine* proto);

JobFile FromProto(const v1::JobFile& proto);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_API_CONVERSION_H_
