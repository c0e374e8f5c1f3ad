#include "engine/data/parquet/arrow_json.h"

#include <arrow/api.h>

#include <charconv>
#include <cmath>
#include <string_view>

#include "engine/data/records/json_text.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

// Appends values to a text. Every method returns false for a text that is not UTF-8.
class JsonWriter {
 public:
  explicit JsonWriter(std::string* json) : json_(json) {}

  // Appends the members of an object, without its braces. `get(i)` is the i-th field's array and
  // `row` the place in it.
  template <typename Names, typename Get>
  bool Members(int fields, const Names& name, const Get& get, int64_t row) {
    bool first = true;
    for (int i = 0; i < fields; ++i) {
      const size_t before = json_->size();
      if (!first) *json_ += ',';
      AppendJsonText(name(i), json_);
      *json_ += ':';
      if (!Value(*get(i), row)) return false;
      if (missing_) {
        json_->resize(before);
      } else {
        first = false;
      }
    }
    missing_ = false;
    return true;
  }

  // Sets `missing_` instead of appending if the value is null or bytes that are no text.
  bool Value(const arrow::Array& array, int64_t i) {
    missing_ = array.IsNull(i);
    if (missing_) return true;
    switch (array.type_id()) {
      case arrow::Type::NA:
        missing_ = true;
        return true;
      case arrow::Type::BOOL:
        *json_ += static_cast<const arrow::BooleanArray&>(array).Value(i) ? "true" : "false";
        return true;
      case arrow::Type::INT8:
        return Number(static_cast<const arrow::Int8Array&>(array).Value(i));
      case arrow::Type::INT16:
        return Number(static_cast<const arrow::Int16Array&>(array).Value(i));
      case arrow::Type::INT32:
        return Number(static_cast<const arrow::Int32Array&>(array).Value(i));
      case arrow::Type::INT64:
        return Number(static_cast<const arrow::Int64Array&>(array).Value(i));
      case arrow::Type::UINT8:
        return Number(static_cast<const arrow::UInt8Array&>(array).Value(i));
      case arrow::Type::UINT16:
        return Number(static_cast<const arrow::UInt16Array&>(array).Value(i));
      case arrow::Type::UINT32:
        return Number(static_cast<const arrow::UInt32Array&>(array).Value(i));
      case arrow::Type::UINT64:
        return Number(static_cast<const arrow::UInt64Array&>(array).Value(i));
      case arrow::Type::FLOAT:
        return Real(static_cast<const arrow::FloatArray&>(array).Value(i));
      case arrow::Type::DOUBLE:
        return Real(static_cast<const arrow::DoubleArray&>(array).Value(i));
      case arrow::Type::STRING:
        return Text(static_cast<const arrow::StringArray&>(array).GetView(i));
      case arrow::Type::LARGE_STRING:
        return Text(static_cast<const arrow::LargeStringArray&>(array).GetView(i));
      case arrow::Type::STRING_VIEW:
        return Text(static_cast<const arrow::StringViewArray&>(array).GetView(i));
      case arrow::Type::BINARY:
        return Bytes(static_cast<const arrow::BinaryArray&>(array).GetView(i));
      case arrow::Type::LARGE_BINARY:
        return Bytes(static_cast<const arrow::LargeBinaryArray&>(array).GetView(i));
      case arrow::Type::BINARY_VIEW:
        return Bytes(static_cast<const arrow::BinaryViewArray&>(array).GetView(i));
      case arrow::Type::FIXED_SIZE_BINARY:
        return Bytes(static_cast<const arrow::FixedSizeBinaryArray&>(array).GetView(i));
      case arrow::Type::LIST:
        return List(static_cast<const arrow::ListArray&>(array), i);
      case arrow::Type::LARGE_LIST:
        return List(static_cast<const arrow::LargeListArray&>(array), i);
      case arrow::Type::FIXED_SIZE_LIST:
        return List(static_cast<const arrow::FixedSizeListArray&>(array), i);
      case arrow::Type::MAP:
        return Map(static_cast<const arrow::MapArray&>(array), i);
      case arrow::Type::STRUCT:
        return Struct(static_cast<const arrow::StructArray&>(array), i);
      case arrow::Type::DICTIONARY: {
        const auto& encoded = static_cast<const arrow::DictionaryArray&>(array);
        return Value(*encoded.dictionary(), encoded.GetValueIndex(i));
      }
      case arrow::Type::EXTENSION:
        return Value(*static_cast<const arrow::ExtensionArray&>(array).storage(), i);
      default: {
        const arrow::Result<std::shared_ptr<arrow::Scalar>> scalar = array.GetScalar(i);
        missing_ = !scalar.ok();
        return missing_ || Text((*scalar)->ToString());
      }
    }
  }

 private:
  template <typename T>
  bool Number(T value) {
    char text[32];
    json_->append(text, std::to_chars(text, text + sizeof(text), value).ptr);
    return true;
  }
  template <typename T>
  bool Real(T value) {
    missing_ = !std::isfinite(value);  // JSON has no other numbers
    if (missing_) return true;
    const size_t begin = json_->size();
    Number(value);
    // A whole number must not be read as an integer.
    if (json_->find_first_of(".e", begin) == std::string::npos) *json_ += ".0";
    return true;
  }
  bool Text(std::string_view text) {
    if (Utf8ValidPrefix(text) < text.size()) return false;
    AppendJsonText(text, json_);
    return true;
  }
  bool Bytes(std::string_view bytes) {
    missing_ = Utf8ValidPrefix(bytes) < bytes.size();
    if (!missing_) AppendJsonText(bytes, json_);
    return true;
  }

  // An element of a list keeps its place, so a missing one is null.
  bool Element(const arrow::Array& array, int64_t i) {
    if (!Value(array, i)) return false;
    if (missing_) *json_ += "null";
    missing_ = false;
    return true;
  }

  template <typename ListArray>
  bool List(const ListArray& list, int64_t i) {
    *json_ += '[';
    const int64_t begin = list.value_offset(i);
    const int64_t end = begin + list.value_length(i);
    for (int64_t at = begin; at < end; ++at) {
      if (at > begin) *json_ += ',';
      if (!Element(*list.values(), at)) return false;
    }
    *json_ += ']';
    return true;
  }

  bool Map(const arrow::MapArray& map, int64_t i) {
    const arrow::Array& keys = *map.keys();
    const bool is_object = keys.type_id() == arrow::Type::STRING ||
                           keys.type_id() == arrow::Type::LARGE_STRING ||
                           keys.type_id() == arrow::Type::STRING_VIEW;
    *json_ += is_object ? '{' : '[';
    const int64_t begin = map.value_offset(i);
    const int64_t end = begin + map.value_length(i);
    bool first = true;
    for (int64_t at = begin; at < end; ++at) {
      if (is_object && (keys.IsNull(at) || map.items()->IsNull(at))) continue;
      if (!first) *json_ += ',';
      first = false;
      if (!is_object) *json_ += "{\"key\":";
      if (!Element(keys, at)) return false;
      *json_ += is_object ? ":" : ",\"value\":";
      if (!Element(*map.items(), at)) return false;
      if (!is_object) *json_ += '}';
    }
    *json_ += is_object ? '}' : ']';
    return true;
  }

  bool Struct(const arrow::StructArray& array, int64_t i) {
    const arrow::StructType& type = *array.struct_type();
    *json_ += '{';
    const bool good = Members(
        type.num_fields(), [&](int f) -> const std::string& { return type.field(f)->name(); },
        [&](int f) { return array.field(f); }, i);
    *json_ += '}';
    return good;
  }

  std::string* const json_;
  bool missing_ = false;
};

}  // namespace

std::string AppendRow(const arrow::RecordBatch& batch, int64_t row, std::string* json) {
  JsonWriter writer(json);
  int column = 0;
  *json += '{';
  const bool good = writer.Members(
      batch.num_columns(),
      [&](int i) -> const std::string& { return batch.column_name(column = i); },
      [&](int i) { return batch.column(i); }, row);
  *json += '}';
  if (good) return "";
  return "column \"" + batch.column_name(column) + "\": a text is not UTF-8";
}

}  // namespace megatrain
