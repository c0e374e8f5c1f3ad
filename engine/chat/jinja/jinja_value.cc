#include "engine/chat/jinja/jinja_value.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/chat/jinja/containers.h"

namespace megatrain {

JinjaValue JinjaValue::None() { return JinjaValue(Data(nullptr)); }
JinjaValue JinjaValue::Bool(bool value) { return JinjaValue(Data(value)); }
JinjaValue JinjaValue::Int(int64_t value) { return JinjaValue(Data(value)); }
JinjaValue JinjaValue::Float(double value) { return JinjaValue(Data(value)); }

JinjaValue JinjaValue::String(std::string text) {
  return JinjaValue(
      Data(std::make_shared<const jinja::Text>(jinja::Text{.text = std::move(text)})));
}

JinjaValue JinjaValue::MakeList(List items) {
  auto list = std::make_shared<jinja::Sequence>();
  for (const JinjaValue& item : items) {
    list->depth = std::max(list->depth, jinja::DepthOf(item) + 1);
  }
  list->items = std::move(items);
  return JinjaValue(Data(std::shared_ptr<const jinja::Sequence>(std::move(list))));
}

JinjaValue JinjaValue::MakeDict(Entries entries) {
  auto dict = std::make_shared<jinja::Dict>();
  for (auto& [key, value] : entries) dict->Set(String(std::move(key)), std::move(value));
  return JinjaValue(Data(std::shared_ptr<const jinja::Dict>(std::move(dict))));
}

bool JinjaValue::is_list() const {
  return kind() == Kind::kSequence && jinja::SequenceOf(*this).kind == jinja::SequenceKind::kList;
}

bool JinjaValue::is_empty() const {
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return as_string().empty();
    case Kind::kSequence:
      return jinja::SequenceOf(*this).items.empty();
    case Kind::kDict:
      return jinja::DictOf(*this).entries.empty();
    default:
      return false;
  }
}

std::string_view JinjaValue::as_string() const { return jinja::TextOf(*this).text; }

namespace jinja {

const JinjaValue* Dict::Find(std::string_view key) const {
  if (entries.size() >= kIndexedMin) {
    const auto at = index.find(key);
    return at == index.end() ? nullptr : &entries[at->second].second;
  }
  for (const auto& [other, value] : entries) {
    if (other.is_string() && other.as_string() == key) return &value;
  }
  return nullptr;
}

void Dict::Set(JinjaValue key, JinjaValue value) {
  if (const JinjaValue* const found = Find(key.as_string()); found != nullptr) {
    depth = std::max(depth, DepthOf(value) + 1);
    *const_cast<JinjaValue*>(found) = std::move(value);
  } else {
    Append(std::move(key), std::move(value));
  }
}

void Dict::Append(JinjaValue key, JinjaValue value) {
  depth = std::max({depth, DepthOf(key) + 1, DepthOf(value) + 1});
  entries.emplace_back(std::move(key), std::move(value));
  if (entries.size() < kIndexedMin) return;
  const size_t first = entries.size() == kIndexedMin ? 0 : entries.size() - 1;
  for (size_t i = first; i < entries.size(); ++i) {
    if (entries[i].first.is_string()) index.emplace(entries[i].first.as_string(), i);
  }
}

bool CallValues::TakeNamed(std::string_view name, JinjaValue* value) {
  for (auto at = named.begin(); at != named.end(); ++at) {
    if (at->first != name) continue;
    *value = std::move(at->second);
    named.erase(at);
    return true;
  }
  return false;
}

int DepthOf(const JinjaValue& value) {
  switch (value.kind()) {
    case JinjaValue::Kind::kSequence:
      return SequenceOf(value).depth;
    case JinjaValue::Kind::kDict:
      return DictOf(value).depth;
    case JinjaValue::Kind::kObject:
      return ObjectOf(value).depth();
    default:
      return 0;
  }
}

absl::StatusOr<JinjaValue> Object::Call(Runtime& runtime, CallValues values) {
  return absl::InvalidArgumentError(absl::StrCat("'", type_name(), "' object is not callable"));
}

}  // namespace jinja
}  // namespace megatrain
