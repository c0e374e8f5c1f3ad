// Makes JSON and YAML of messages, complete and stable. Every field has its name of the .proto, in
// that order. 64-bit numbers are numbers, enums are names, times are RFC 3339. Unset messages and
// numbers that are not finite are null; unset `optional` numbers are left out.
#ifndef MEGATRAIN_CLIENT_OUTPUT_PROTO_JSON_H_
#define MEGATRAIN_CLIENT_OUTPUT_PROTO_JSON_H_

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>

#include "megatrain/v1/step_metrics.pb.h"

namespace megatrain::client {

nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

// Has the keys of the daemon's metrics files, then `sequence` and `superseded`.
nlohmann::ordered_json ToJson(const v1::StepMetricsRecord& record);

// Return JSON in one line, or indented; without a line end.
std::string JsonLine(const nlohmann::ordered_json& json);
std::string JsonText(const nlohmann::ordered_json& json);
// Returns YAML as lines, each with its end.
std::string YamlText(const nlohmann::ordered_json& json);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_OUTPUT_PROTO_JSON_H_
