#include "client/watch/watch_json.h"

#include <variant>

#include "client/output/proto_json.h"

namespace megatrain::client {
namespace {

using Json = nlohmann::ordered_json;

// The job's stream speaks for all of them.
void Connection(WatchStream stream, const char* what, std::vector<Json>* records) {
  if (stream == WatchStream::kJob) records->push_back({{"connection", what}});
}

}  // namespace

std::vector<Json> WatchRecords(const WatchEvent& event) {
  std::vector<Json> records;
  if (const auto* const job = std::get_if<v1::WatchJobResponse>(&event)) {
    if (job->has_job()) records.push_back({{"job", ToJson(job->job())}});
    if (job->has_event()) records.push_back({{"event", ToJson(job->event())}});
    if (job->has_missed()) records.push_back({{"missed", ToJson(job->missed())}});
  } else if (const auto* const steps = std::get_if<v1::StreamStepMetricsResponse>(&event)) {
    for (const v1::StepMetricsRecord& record : steps->batch().records()) {
      records.push_back({{"step", ToJson(record)}});
    }
    if (steps->has_fell_back()) records.push_back({{"fell_back", ToJson(steps->fell_back())}});
    if (steps->has_missed()) records.push_back({{"missed", ToJson(steps->missed())}});
  } else if (const auto* const log = std::get_if<v1::StreamLogsResponse>(&event)) {
    for (const v1::LogLine& line : log->batch().lines()) {
      records.push_back({{"log", ToJson(line)}});
    }
    if (log->has_missed()) records.push_back({{"missed", ToJson(log->missed())}});
  } else if (const auto* const lost = std::get_if<StreamLost>(&event)) {
    Connection(lost->stream, "lost", &records);
  } else if (const auto* const restored = std::get_if<StreamRestored>(&event)) {
    Connection(restored->stream, "restored", &records);
  }
  return records;
}

}  // namespace megatrain::client
