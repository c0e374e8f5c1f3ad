// Reads a JSON object that comes from outside, key by key, and refuses keys that were not read.
#ifndef MEGATRAIN_ENGINE_HF_CONFIG_JSON_FIELDS_H_
#define MEGATRAIN_ENGINE_HF_CONFIG_JSON_FIELDS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/json.h"

namespace megatrain {

// Reads one JSON object. Each accessor (Integer to String) returns the value of `key`, or `absent`
// if the key is missing or null. A wrong type, or a value outside [least, most], is an error; the
// accessor then returns `absent` too. status() keeps the first error, so that a caller may read all
// fields and look at it once, at the end. The errors found here are InvalidArgument and name the
// key. Not thread-safe.
class JsonFields {
 public:
  // `path` begins messages, and `prefix` is put before a key's name in them. REQUIRES: `object` is
  // a JSON object. It must outlive this.
  JsonFields(const nlohmann::json& object, std::string path, std::string prefix = "")
      : object_(object), path_(std::move(path)), prefix_(std::move(prefix)) {}

  // Returns the value, valid as long as the object, or null if the key is missing or null. Marks
  // the key as read.
  const nlohmann::json* Find(const std::string& key) {
    read_.insert(key);
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  // Returns true if the key is there, even as null. Does not mark it as read.
  bool Has(const std::string& key) const { return object_.contains(key); }

  // Returns true if Find, an accessor or MustBe was called for the key.
  bool IsRead(const std::string& key) const { return read_.contains(key); }

  // Records an InvalidArgument unless there was an error before. Its message is the path, the
  // prefixed key and `what`: "config.json: text_config.head_dim: is missing".
  void Refuse(const std::string& key, const std::string& what) {
    if (status_.ok()) {
      status_ = absl::InvalidArgumentError(absl::StrCat(path_, ": ", prefix_, key, ": ", what));
    }
  }

  int64_t Integer(const std::string& key, int64_t least, int64_t most, int64_t absent) {
    const nlohmann::json* const value = Find(key);
    if (value == nullptr) return absent;
    if (value->is_number_integer() &&
        !(value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{INT64_MAX})) {
      const int64_t number = value->get<int64_t>();
      if (number >= least && number <= most) return number;
    }
    Refuse(key, absl::StrCat("must be an integer from ", least, " to ", most, ", not ",
                             DescribeJson(*value)));
    return absent;
  }

  // Treats a missing or null key as an error, and returns `least` after an error.
  int64_t RequiredInteger(const std::string& key, int64_t least, int64_t most) {
    if (Find(key) == nullptr) Refuse(key, "is missing");
    return Integer(key, least, most, least);
  }

  // Both bounds are allowed values.
  double Number(const std::string& key, double least, double most, double absent) {
    const nlohmann::json* const value = Find(key);
    if (value == nullptr) return absent;
    if (value->is_number()) {
      const double number = value->get<double>();
      if (number >= least && number <= most) return number;
    }
    Refuse(key, absl::StrCat("must be a number from ", least, " to ", most, ", not ",
                             DescribeJson(*value)));
    return absent;
  }

  bool Boolean(const std::string& key, bool absent) {
    const nlohmann::json* const value = Find(key);
    if (value == nullptr) return absent;
    if (value->is_boolean()) return value->get<bool>();
    Refuse(key, absl::StrCat("must be true or false, not ", DescribeJson(*value)));
    return absent;
  }

  std::string String(const std::string& key, const std::string& absent) {
    const nlohmann::json* const value = Find(key);
    if (value == nullptr) return absent;
    if (value->is_string()) return value->get<std::string>();
    Refuse(key, absl::StrCat("must be a string, not ", DescribeJson(*value)));
    return absent;
  }

  // Refuses every value but `only`, the one that the engine supports. The key may be missing or
  // null.
  void MustBe(const std::string& key, const nlohmann::json& only, const std::string& why) {
    const nlohmann::json* const value = Find(key);
    if (value != nullptr && *value != only) {
      Refuse(key, absl::StrCat(DescribeJson(*value), " is not supported: ", why));
    }
  }

  // Records an error that names all keys of the object that were neither read nor are in `ignored`,
  // unless there was an error before.
  void RefuseUnread(const std::set<std::string>& ignored) {
    std::vector<std::string> unknown;
    for (const auto& [key, value] : object_.items()) {
      if (!read_.contains(key) && !ignored.contains(key)) unknown.push_back(prefix_ + key);
    }
    if (status_.ok() && !unknown.empty()) {
      status_ = absl::InvalidArgumentError(absl::StrCat(
          path_, ": unknown key", unknown.size() > 1 ? "s " : " ", absl::StrJoin(unknown, ", "),
          ": what is not understood may change the mathematics and is not ignored; remove it if "
          "it does not"));
    }
  }

  // Records an error that was found elsewhere, unless there was one before. Ignores an OK status.
  void Take(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }

  const absl::Status& status() const { return status_; }
  const std::string& path() const { return path_; }

 private:
  const nlohmann::json& object_;
  const std::string path_;
  const std::string prefix_;
  std::set<std::string> read_;
  absl::Status status_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_CONFIG_JSON_FIELDS_H_
