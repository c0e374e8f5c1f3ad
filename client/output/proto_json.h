// Messages of the API as JSON and YAML, complete and stable: every field under the name it has in
// the .proto, in its order; 64-bit numbers as numbers, enums by name, times in RFC 3339. A message
// that is not set is null; an `optional` number that is not set is left out. What is not finite is
// null.
#ifndef MEGATRAIN_CLIENT_OUTPUT_PROTO_JSON_H_
#define MEGATRAIN_CLIENT_OUTPUT_PROTO_JSON_H_

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>

#include "megatrain/v1/step_metrics.pb.h"

namespace megatrain::client {

nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

// The keys of the daemon's metrics files, then `sequence` and `superseded`.
nlohmann::ordered_json ToJson(const v1::StepMetricsRecord& record);

// In one line, or indented; without a line end.
std::string JsonLine(const nlohmann::ordered_json& json);
std::string JsonText(const nlohmann::ordered_json& json);
// A block of lines, each with its end.
std::string YamlText(const nlohmann::ordered_json& json);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_OUTPUT_PROTO_JSON_H_
