#include "server/worker/log_line.h"

#include <nlohmann/json.hpp>

#include "engine/base/json.h"

namespace megatrain {
namespace {

std::string Text(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

std::string LogLineJson(const LogLine& line) {
  const nlohmann::ordered_json json = {{"time", line.time}, {"text", line.text}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<LogLine> ParseLogLine(std::string_view json) {
  const absl::StatusOr<nlohmann::json> parsed = ParseJson(json, "log line");
  if (!parsed.ok()) return absl::DataLossError(parsed.status().message());
  if (!parsed->is_object()) return absl::DataLossError("log line: expects an object");
  return LogLine{Text(*parsed, "time"), Text(*parsed, "text")};
}

}  // namespace megatrain
