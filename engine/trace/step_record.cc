#include "engine/trace/step_record.h"

#include <nlohmann/json.hpp>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace megatrain {

std::string StepRecordJson(const StepRecord& record) {
  // nlohmann writes the shortest text that reads back as the same double, and null for NaN and
  // infinities.
  nlohmann::ordered_json json;
  json["step"] = record.step;
  json["loss"] = record.loss;
  json["gradient_norm"] = record.gradient_norm;
  json["learning_rate"] = record.learning_rate;
  json["tokens"] = record.tokens;
  json["input_tokens"] = record.input_tokens;
  json["total_tokens"] = record.total_tokens;
  json["step_seconds"] = record.step_seconds;
  json["tokens_per_second"] = record.tokens_per_second;
  json["model_flops_per_second"] = record.model_flops_per_second;
  json["h2d_bytes"] = record.h2d_bytes;
  json["d2h_bytes"] = record.d2h_bytes;
  json["lane_busy_seconds"] = {{"h2d", record.lane_busy_seconds.h2d},
                               {"compute", record.lane_busy_seconds.compute},
                               {"d2h", record.lane_busy_seconds.d2h},
                               {"update", record.lane_busy_seconds.update},
                               {"io", record.lane_busy_seconds.io},
                               {"device_update", record.lane_busy_seconds.device_update}};
  json["matmul_seconds"] = record.matmul_seconds;
  json["forward_seconds"] = record.forward_seconds;
  json["host_bytes"] = record.host_bytes;
  json["device_bytes"] = record.device_bytes;
  if (record.eval_loss.has_value()) json["eval_loss"] = *record.eval_loss;
  json["time"] = record.time;
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string Rfc3339Now() {
  return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone());
}

}  // namespace megatrain
