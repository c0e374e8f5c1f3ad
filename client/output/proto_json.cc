#include "client/output/proto_json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/timestamp.pb.h>
#include <yaml-cpp/yaml.h>

#include <cmath>
#include <map>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/output/proto_time.h"

namespace megatrain::client {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Json = nlohmann::ordered_json;

Json MessageJson(const Message& message);

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

// The field's value, or of a repeated field that at `i`.
Json Value(const Message& message, const FieldDescriptor* field, int i) {
  const Reflection* const reflection = message.GetReflection();
  const bool repeated = field->is_repeated();
  switch (field->cpp_type()) {
#define MT_CASE(TYPE, METHOD)                                            \
  case FieldDescriptor::CPPTYPE_##TYPE:                                  \
    return repeated ? reflection->GetRepeated##METHOD(message, field, i) \
                    : reflection->Get##METHOD(message, field);
    MT_CASE(INT32, Int32)
    MT_CASE(INT64, Int64)
    MT_CASE(UINT32, UInt32)
    MT_CASE(UINT64, UInt64)
    MT_CASE(BOOL, Bool)
    MT_CASE(STRING, String)
#undef MT_CASE
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Number(repeated ? reflection->GetRepeatedDouble(message, field, i)
                             : reflection->GetDouble(message, field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Number(repeated ? reflection->GetRepeatedFloat(message, field, i)
                             : reflection->GetFloat(message, field));
    case FieldDescriptor::CPPTYPE_ENUM: {
      // A value of a newer server has no name here.
      const int number = repeated ? reflection->GetRepeatedEnumValue(message, field, i)
                                  : reflection->GetEnumValue(message, field);
      const auto* const value = field->enum_type()->FindValueByNumber(number);
      return value == nullptr ? Json(number) : Json(value->name());
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageJson(repeated ? reflection->GetRepeatedMessage(message, field, i)
                                  : reflection->GetMessage(message, field));
  }
  return nullptr;
}

// A map with names as keys, in their order.
Json MapJson(const Message& message, const FieldDescriptor* field) {
  const Reflection* const reflection = message.GetReflection();
  std::map<std::string, Json> entries;
  for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
    const Message& entry = reflection->GetRepeatedMessage(message, field, i);
    const auto* const descriptor = entry.GetDescriptor();
    entries[Value(entry, descriptor->map_key(), 0).get<std::string>()] =
        Value(entry, descriptor->map_value(), 0);
  }
  return entries;
}

Json MessageJson(const Message& message) {
  if (message.GetDescriptor() == google::protobuf::Timestamp::descriptor()) {
    const absl::Time time = ToTime(static_cast<const google::protobuf::Timestamp&>(message));
    return absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", time, absl::UTCTimeZone());
  }
  const Reflection* const reflection = message.GetReflection();
  const auto* const descriptor = message.GetDescriptor();
  Json json = Json::object();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* const field = descriptor->field(i);
    if (field->is_map()) {
      if (reflection->FieldSize(message, field) > 0) {
        json[field->name()] = MapJson(message, field);
      }
    } else if (field->is_repeated()) {
      Json& list = json[field->name()] = Json::array();
      for (int j = 0; j < reflection->FieldSize(message, field); ++j) {
        list.push_back(Value(message, field, j));
      }
    } else if (!field->has_presence() || reflection->HasField(message, field)) {
      json[field->name()] = Value(message, field, 0);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
               descriptor != v1::StepMetrics::descriptor() &&
               field->real_containing_oneof() == nullptr) {
      // A step leaves out what its kind of job does not have, as the metrics files do.
      json[field->name()] = nullptr;
    }
  }
  return json;
}

// Whether YAML reads the plain text as this string and nothing else.
bool IsPlain(const std::string& text) {
  if (text.empty() || !absl::ascii_isalpha(static_cast<unsigned char>(text.front()))) return false;
  for (const char c : text) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-' && c != '/' &&
        c != '.') {
      return false;
    }
  }
  const std::string lower = absl::AsciiStrToLower(text);
  for (const char* const word : {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}) {
    if (lower == word) return false;
  }
  return true;
}

void Emit(const Json& json, YAML::Emitter* out) {
  if (json.is_object()) {
    *out << YAML::BeginMap;
    for (const auto& [key, value] : json.items()) {
      *out << YAML::Key;
      if (!IsPlain(key)) *out << YAML::DoubleQuoted;
      *out << key << YAML::Value;
      Emit(value, out);
    }
    *out << YAML::EndMap;
  } else if (json.is_array()) {
    *out << YAML::BeginSeq;
    for (const Json& value : json) Emit(value, out);
    *out << YAML::EndSeq;
  } else if (json.is_string()) {
    const std::string& text = json.get_ref<const std::string&>();
    if (!IsPlain(text)) *out << YAML::DoubleQuoted;
    *out << text;
  } else if (json.is_null()) {
    *out << YAML::Null;
  } else {
    std::string text = json.dump();  // numbers, true and false are written alike
    // But for YAML 1.1 a number with an exponent has a point.
    const size_t exponent = text.find('e');
    if (json.is_number_float() && exponent != std::string::npos &&
        text.find('.') == std::string::npos) {
      text.insert(exponent, ".0");
    }
    *out << text;
  }
}

}  // namespace

Json ToJson(const Message& message) { return MessageJson(message); }

Json ToJson(const v1::StepMetricsRecord& record) {
  Json json = MessageJson(record.metrics());
  json["sequence"] = record.sequence();
  json["superseded"] = record.superseded();
  return json;
}

std::string JsonLine(const Json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string JsonText(const Json& json) {
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string YamlText(const Json& json) {
  YAML::Emitter out;
  Emit(json, &out);
  return absl::StrCat(out.c_str(), "\n");
}

}  // namespace megatrain::client
