// Converts the daemon's values to messages of the API, and a job file back. Texts are made valid
// UTF-8 on the way out. REQUIRES: messages to fill are empty.
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

// REQUIRES: a finite time.
google::protobuf::Timestamp ToTimestamp(absl::Time time);

v1::Job::State ToProto(JobState state);
v1::Job::Reason ToProto(JobReason reason);
v1::QueueStatus::Waiting ToProto(WaitingReason reason);

// Includes the job's file in JOB_VIEW_FULL only.
void ToProto(const Job& job, v1::JobView view, v1::Job* proto);
void ToProto(const JobEvent& event, v1::JobEvent* proto);
void ToProto(const std::string& job_id, const JobCheckpoint& checkpoint, v1::Checkpoint* proto);
void ToProto(const StepRecord& record, v1::StepMetrics* proto);
void ToProto(const PlanReport& report, v1::Plan* proto);
// REQUIRES: `refusal` is an error of CheckUserLimits.
void ToProto(const absl::Status& refusal, v1::UserLimit* proto);

// Reads a line of a job's log (JobRecords). Returns DataLoss if `json` is no JSON object. A field
// stays empty if its key is missing or not a text.
absl::Status ReadLogLine(std::string_view json, v1::LogLine* proto);

JobFile FromProto(const v1::JobFile& proto);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_API_CONVERSION_H_
