// Turns protobuf messages into complete and stable JSON and YAML. Fields have the names and the
// order of the .proto file. 64-bit numbers are numbers, enums are names (numbers if the name is not
// known), and times are texts of RFC 3339 in UTC with milliseconds. Unset messages and numbers that
// are not finite are null. Left out are unset `optional` fields other than messages, unset members
// of a oneof, unset messages in StepMetrics, and empty maps.
#ifndef MEGATRAIN_CLIENT_OUTPUT_PROTO_JSON_H_
#define MEGATRAIN_CLIENT_OUTPUT_PROTO_JSON_H_

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>

#include "megatrain/v1/step_metrics.pb.h"

namespace megatrain::client {

// Returns the message as an object, or as a text if it is a Timestamp. REQUIRES: the keys of its
// maps are strings.
nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

// Returns an object with the keys of the daemon's metrics files, except compute_seconds and
// router.dropped, which the API does not have, then `sequence` and `superseded`.
nlohmann::ordered_json ToJson(const v1::StepMetricsRecord& record);

// Return JSON text, JsonLine in one line and JsonText indented, without a final line end. Invalid
// UTF-8 is replaced.
std::string JsonLine(const nlohmann::ordered_json& json);
std::string JsonText(const nlohmann::ordered_json& json);
// Returns YAML text. Every line, also the last, has its line end.
std::string YamlText(const nlohmann::ordered_json& json);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_OUTPUT_PROTO_JSON_H_
