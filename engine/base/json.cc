#include "engine/base/json.h"

#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

template <typename Json>
Json* AddMember(Json* object, std::string key) {
  return &(*object)[std::move(key)];
}

// ordered_json looks for the key in all that are there; they are known to be different.
template <>
nlohmann::ordered_json* AddMember(nlohmann::ordered_json* object, std::string key) {
  auto& members = object->template get_ref<nlohmann::ordered_json::object_t&>();
  members.push_back({std::move(key), nlohmann::ordered_json()});
  return &members.back().second;
}

// Builds the value from the parser's events. An event that returns false ends the parse; error_
// then says why.
template <typename Json>
class Builder : public nlohmann::json_sax<Json> {
 public:
  using typename nlohmann::json_sax<Json>::number_integer_t;
  using typename nlohmann::json_sax<Json>::number_unsigned_t;
  using typename nlohmann::json_sax<Json>::number_float_t;
  using typename nlohmann::json_sax<Json>::string_t;
  using typename nlohmann::json_sax<Json>::binary_t;

  bool null() override { return Add(Json(nullptr)); }
  bool boolean(bool value) override { return Add(Json(value)); }
  bool number_integer(number_integer_t value) override { return Add(Json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Add(Json(value)); }
  bool number_float(number_float_t value, const string_t&) override { return Add(Json(value)); }
  bool string(string_t& value) override { return Add(Json(std::move(value))); }
  bool binary(binary_t&) override { return Fail("binary data"); }
  bool start_object(std::size_t) override { return Open(Json::object()); }
  bool key(string_t& name) override {
    Container& object = open_.back();
    if (!object.keys.insert(name).second) {
      return Fail(absl::StrCat("the key \"", name, "\" appears twice in one object"));
    }
    slot_ = AddMember(object.value, std::move(name));
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(Json::array()); }
  bool end_array() override { return Close(); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& exception) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while ...":
    // what follows the bracket is for people.
    std::string message = exception.what();
    const size_t bracket = message.find("] ");
    if (bracket != std::string::npos) message.erase(0, bracket + 2);
    return Fail(absl::StrCat(message, " (byte ", position, ")"));
  }

  Json& root() { return root_; }
  const std::string& error() const { return error_; }

 private:
  struct Container {
    Json* value;
    absl::flat_hash_set<std::string> keys;  // objects
  };

  // Puts a value in the next place: the root, the member whose key was read, or the array's end. A
  // container's address holds while it is open, because nothing is added beside it until it closes.
  Json* Place(Json value) {
    Json* to = &root_;
    if (!open_.empty()) {
      Json* const container = open_.back().value;
      if (container->is_array()) {
        container->push_back(Json());
        to = &container->back();
      } else {
        to = slot_;
      }
    }
    *to = std::move(value);
    return to;
  }
  bool Add(Json value) {
    Place(std::move(value));
    return true;
  }
  bool Open(Json value) {
    if (open_.size() >= kJsonDepthMax) {
      return Fail(absl::StrCat("nested deeper than ", kJsonDepthMax, " levels"));
    }
    open_.push_back({Place(std::move(value)), {}});
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }
  bool Fail(std::string error) {
    if (error_.empty()) error_ = std::move(error);
    return false;
  }

  Json root_;
  std::vector<Container> open_;
  Json* slot_ = nullptr;
  std::string error_;
};

template <typename Json>
absl::StatusOr<Json> Parse(std::string_view text, const std::string& name) {
  // The parser takes a zero byte for the end of the text.
  const size_t zero = text.find('\0');
  if (zero != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": not valid JSON: byte ", zero, " is zero"));
  }
  Builder<Json> builder;
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": not valid JSON: ", builder.error()));
  }
  return std::move(builder.root());
}

}  // namespace

absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, const std::string& name) {
  return Parse<nlohmann::json>(text, name);
}

absl::StatusOr<nlohmann::ordered_json> ParseOrderedJson(std::string_view text,
                                                        const std::string& name) {
  return Parse<nlohmann::ordered_json>(text, name);
}

std::string DescribeJson(const nlohmann::json& value) {
  switch (value.type()) {
    case nlohmann::json::value_t::null:
      return "null";
    case nlohmann::json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    case nlohmann::json::value_t::number_integer:
    case nlohmann::json::value_t::number_unsigned:
    case nlohmann::json::value_t::number_float:
      return absl::StrCat("the number ", value.dump());
    case nlohmann::json::value_t::string: {
      const std::string& text = value.get_ref<const std::string&>();
      if (text.size() > 100) return "a long string";
      return absl::StrCat("the string \"", text, "\"");
    }
    case nlohmann::json::value_t::array:
      return "a list";
    case nlohmann::json::value_t::object:
      return "an object";
    default:
      return "nothing";
  }
}

}  // namespace megatrain
