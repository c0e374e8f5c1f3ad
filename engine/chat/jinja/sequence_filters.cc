// Jinja's filters of sequences and dicts that need no other filter or test.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/chat/jinja/builtins.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/python/unicode_text.h"
#include "engine/chat/jinja/value_text.h"

namespace megatrain::jinja {
namespace {

using Kind = JinjaValue::Kind;
using Items = std::vector<JinjaValue>;

// A generator of items that are already there.
Result GeneratorOf(Runtime& runtime, Items items) {
  MT_ASSIGN_OR_RETURN(const JinjaValue list, runtime.MakeList(std::move(items)));
  return MakeGenerator(runtime, list,
                       [list, at = size_t{0}](
                           Runtime& runtime) mutable -> absl::StatusOr<std::optional<JinjaValue>> {
                         std::optional<JinjaValue> next;
                         if (at < SequenceOf(list).items.size())
                           next = SequenceOf(list).items[at++];
                         return next;
                       });
}

// An item with the keys that it is sorted by. They compare as Python's lists of keys do.
struct Keyed {
  Items keys;
  JinjaValue item;
};

// Sorts stably by `keys`, which are compared as lists of keys or, if not `lists`, as one key each.
// Returns InvalidArgument if some have no order. Equal ones need none in lists alone.
absl::Status SortByKeys(Runtime& runtime, bool reverse, bool lists, std::vector<Keyed>* items) {
  absl::Status status;
  const auto less = [&](const Keyed& a, const Keyed& b) {
    for (size_t i = 0; i < a.keys.size() && status.ok(); ++i) {
      if (lists && Equal(runtime, a.keys[i], b.keys[i])) continue;
      const auto result = Compare(runtime, Operator::kLess, a.keys[i], b.keys[i]);
      status.Update(result.status());
      return result.ok() && *result;
    }
    return false;
  };
  // Python sorts in reverse without changing the order of equal items.
  if (reverse) std::reverse(items->begin(), items->end());
  std::stable_sort(items->begin(), items->end(), less);
  if (reverse) std::reverse(items->begin(), items->end());
  MT_RETURN_IF_ERROR(runtime.CheckBudget());
  return status;
}

absl::StatusOr<std::vector<Keyed>> WithKeys(Call& call, const JinjaValue& value,
                                            const std::vector<AttributePath>& paths) {
  MT_ASSIGN_OR_RETURN(Items items, ToItems(call.runtime, value));
  std::vector<Keyed> keyed;
  for (JinjaValue& item : items) {
    keyed.push_back({{}, item});
    for (const AttributePath& path : paths) {
      MT_ASSIGN_OR_RETURN(JinjaValue key, path.Get(call.runtime, item));
      keyed.back().keys.push_back(std::move(key));
    }
  }
  return keyed;
}

Result Sort(Call& call) {
  MT_ASSIGN_OR_RETURN(const auto paths,
                      AttributePath::ParseList(call.arguments[2], !call.TrueOr(1, false)));
  MT_ASSIGN_OR_RETURN(std::vector<Keyed> keyed, WithKeys(call, call.self, paths));
  MT_RETURN_IF_ERROR(SortByKeys(call.runtime, call.TrueOr(0, false), /*lists=*/true, &keyed));
  Items items;
  for (Keyed& item : keyed) items.push_back(std::move(item.item));
  return call.runtime.MakeList(std::move(items));
}

absl::StatusOr<Items> PairsOf(Runtime& runtime, const Dict& dict) {
  Items pairs;
  for (const auto& [key, value] : dict.entries) {
    MT_ASSIGN_OR_RETURN(JinjaValue pair, runtime.MakeSequence(SequenceKind::kTuple, {key, value}));
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

Result DictSort(Call& call) {
  const JinjaValue by = call.Or(1, JinjaValue::String("key"));
  if (!by.is_string() || (by.as_string() != "key" && by.as_string() != "value")) {
    return Error("You can only sort by either \"key\" or \"value\"");
  }
  if (!call.self.is_dict()) return Error("dictsort() takes a dict");
  const bool case_sensitive = call.TrueOr(0, false), value = by.as_string() == "value";
  MT_ASSIGN_OR_RETURN(Items pairs, PairsOf(call.runtime, DictOf(call.self)));
  std::vector<Keyed> keyed;
  for (JinjaValue& pair : pairs) {
    MT_ASSIGN_OR_RETURN(JinjaValue key,
                        FoldKey(call.runtime, SequenceOf(pair).items[value], !case_sensitive));
    keyed.push_back({{std::move(key)}, std::move(pair)});
  }
  MT_RETURN_IF_ERROR(SortByKeys(call.runtime, call.TrueOr(2, false), /*lists=*/false, &keyed));
  Items items;
  for (Keyed& item : keyed) items.push_back(std::move(item.item));
  return call.runtime.MakeList(std::move(items));
}

Result GroupBy(Call& call) {
  const bool fold = !call.TrueOr(2, false);
  std::optional<JinjaValue> otherwise = call.arguments[1];
  MT_ASSIGN_OR_RETURN(AttributePath path, AttributePath::Parse(call[0], fold, otherwise));
  MT_ASSIGN_OR_RETURN(const AttributePath plain, AttributePath::Parse(call[0], false, otherwise));
  MT_ASSIGN_OR_RETURN(std::vector<Keyed> keyed, WithKeys(call, call.self, {path}));
  MT_RETURN_IF_ERROR(SortByKeys(call.runtime, false, /*lists=*/false, &keyed));
  Items groups;
  for (size_t i = 0; i < keyed.size();) {
    Items members;
    size_t end = i;
    while (end < keyed.size() && Equal(call.runtime, keyed[i].keys[0], keyed[end].keys[0])) {
      members.push_back(keyed[end++].item);
    }
    MT_RETURN_IF_ERROR(call.runtime.CheckBudget());
    end = std::max(end, i + 1);  // nan does not equal itself
    if (members.empty()) members.push_back(keyed[i].item);
    MT_ASSIGN_OR_RETURN(JinjaValue key, plain.Get(call.runtime, keyed[i].item));
    MT_ASSIGN_OR_RETURN(JinjaValue list, call.runtime.MakeList(std::move(members)));
    MT_ASSIGN_OR_RETURN(const JinjaValue tuple,
                        call.runtime.MakeSequence(SequenceKind::kTuple, {key, list}));
    auto group = std::make_shared<Sequence>(SequenceOf(tuple));
    group->is_group = true;
    groups.push_back(JinjaValue(JinjaValue::Data(std::shared_ptr<const Sequence>(group))));
    i = end;
  }
  return call.runtime.MakeList(std::move(groups));
}

template <Operator op>
Result Extreme(Call& call) {
  MT_ASSIGN_OR_RETURN(const auto path,
                      AttributePath::Parse(call.Or(1, JinjaValue::None()), !call.TrueOr(0, false)));
  MT_ASSIGN_OR_RETURN(const std::vector<Keyed> keyed, WithKeys(call, call.self, {path}));
  if (keyed.empty()) {
    return call.runtime.MakeUndefined("No aggregated item, sequence was empty.");
  }
  size_t best = 0;
  for (size_t i = 1; i < keyed.size(); ++i) {
    MT_ASSIGN_OR_RETURN(const bool better,
                        Compare(call.runtime, op, keyed[i].keys[0], keyed[best].keys[0]));
    if (better) best = i;
  }
  return keyed[best].item;
}

Result Unique(Call& call) {
  MT_ASSIGN_OR_RETURN(const auto path,
                      AttributePath::Parse(call.Or(1, JinjaValue::None()), !call.TrueOr(0, false)));
  MT_ASSIGN_OR_RETURN(const std::vector<Keyed> keyed, WithKeys(call, call.self, {path}));
  Dict seen;
  Items items;
  for (const Keyed& item : keyed) {
    MT_ASSIGN_OR_RETURN(const JinjaValue* const found, call.runtime.FindEntry(seen, item.keys[0]));
    if (found != nullptr) continue;
    MT_RETURN_IF_ERROR(call.runtime.SetEntry(&seen, item.keys[0], JinjaValue::None()));
    items.push_back(item.item);
  }
  return GeneratorOf(call.runtime, std::move(items));
}

Result Sum(Call& call) {
  MT_ASSIGN_OR_RETURN(const auto path, AttributePath::Parse(call.Or(0, JinjaValue::None()), false));
  JinjaValue sum = call.Or(1, JinjaValue::Int(0));
  if (sum.is_string()) return Error("sum() can't sum strings");
  MT_ASSIGN_OR_RETURN(const Items items, ToItems(call.runtime, call.self));
  for (const JinjaValue& item : items) {
    MT_ASSIGN_OR_RETURN(const JinjaValue value, path.Get(call.runtime, item));
    MT_ASSIGN_OR_RETURN(sum, Arithmetic(call.runtime, Operator::kAdd, sum, value));
  }
  return sum;
}

Result Join(Call& call) {
  MT_ASSIGN_OR_RETURN(const auto path, AttributePath::Parse(call.Or(1, JinjaValue::None()), false));
  MT_ASSIGN_OR_RETURN(const std::string between,
                      ToText(call.runtime, call.Or(0, JinjaValue::String(""))));
  MT_ASSIGN_OR_RETURN(Cursor cursor, Cursor::Over(call.self));
  std::string result;
  JinjaValue item;
  for (bool first = true;; first = false) {
    MT_ASSIGN_OR_RETURN(const bool more, cursor.Next(call.runtime, &item));
    if (!more) return call.runtime.MakeText(std::move(result));
    MT_ASSIGN_OR_RETURN(const JinjaValue value, path.Get(call.runtime, item));
    MT_ASSIGN_OR_RETURN(const std::string text, ToText(call.runtime, value));
    if (!first) result += between;
    result += text;
    if (result.size() > call.runtime.bytes_left()) return call.runtime.Charge(result.size());
  }
}

Result Length(Call& call) {
  MT_ASSIGN_OR_RETURN(const int64_t length, LengthOf(call.runtime, call.self));
  return JinjaValue::Int(length);
}

Result First(Call& call) {
  MT_ASSIGN_OR_RETURN(Cursor cursor, Cursor::Over(call.self));
  JinjaValue item;
  MT_ASSIGN_OR_RETURN(const bool any, cursor.Next(call.runtime, &item));
  if (any) return item;
  return call.runtime.MakeUndefined("No first item, sequence was empty.");
}

absl::Status CheckReversible(const JinjaValue& value) {
  if (value.kind() != Kind::kObject) return absl::OkStatus();
  return Error(absl::StrCat("'", TypeName(value), "' object is not reversible"));
}

Result Last(Call& call) {
  MT_RETURN_IF_ERROR(CheckReversible(call.self));
  if (call.self.is_string()) {
    MT_ASSIGN_OR_RETURN(JinjaValue last, GetItem(call.runtime, call.self, JinjaValue::Int(-1)));
    if (!last.is_undefined()) return last;
    return call.runtime.MakeUndefined("No last item, sequence was empty.");
  }
  MT_ASSIGN_OR_RETURN(const Items items, ToItems(call.runtime, call.self));
  if (!items.empty()) return items.back();
  return call.runtime.MakeUndefined("No last item, sequence was empty.");
}

Result Reverse(Call& call) {
  if (call.self.is_string()) {
    return GetSlice(call.runtime, call.self, JinjaValue::None(), JinjaValue::None(),
                    JinjaValue::Int(-1));
  }
  MT_ASSIGN_OR_RETURN(Items items, ToItems(call.runtime, call.self));
  std::reverse(items.begin(), items.end());
  if (!CheckReversible(call.self).ok()) return call.runtime.MakeList(std::move(items));
  return GeneratorOf(call.runtime, std::move(items));
}

Result List(Call& call) {
  MT_ASSIGN_OR_RETURN(Items items, ToItems(call.runtime, call.self));
  return call.runtime.MakeList(std::move(items));
}

Result ItemsOf(Call& call) {
  if (call.self.is_undefined()) return GeneratorOf(call.runtime, {});
  if (!call.self.is_dict()) return Error("Can only get item pairs from a mapping.");
  MT_ASSIGN_OR_RETURN(Items pairs, PairsOf(call.runtime, DictOf(call.self)));
  return GeneratorOf(call.runtime, std::move(pairs));
}

Result Batch(Call& call) {
  MT_ASSIGN_OR_RETURN(const int64_t size, call.IntOr(0, 0));
  MT_ASSIGN_OR_RETURN(const Items items, ToItems(call.runtime, call.self));
  Items batches, batch;
  const auto finish = [&]() -> absl::Status {
    MT_ASSIGN_OR_RETURN(JinjaValue list, call.runtime.MakeList(std::move(batch)));
    batches.push_back(std::move(list));
    batch.clear();
    return absl::OkStatus();
  };
  for (const JinjaValue& item : items) {
    if (static_cast<int64_t>(batch.size()) == size) MT_RETURN_IF_ERROR(finish());
    batch.push_back(item);
  }
  if (!batch.empty()) {
    const JinjaValue fill = call.Or(1, JinjaValue::None());
    const int64_t room = fill.is_none() ? 0 : size - static_cast<int64_t>(batch.size());
    if (room > 0) {
      if (room > (1 << 24)) return Error("a batch of too many items");
      MT_RETURN_IF_ERROR(call.runtime.Charge(room * sizeof(JinjaValue)));
      batch.insert(batch.end(), room, fill);
    }
    MT_RETURN_IF_ERROR(finish());
  }
  return GeneratorOf(call.runtime, std::move(batches));
}

Result Slice(Call& call) {
  MT_ASSIGN_OR_RETURN(const int64_t slices, call.IntOr(0, 0));
  MT_ASSIGN_OR_RETURN(const Items items, ToItems(call.runtime, call.self));
  if (slices == 0) return Error("integer division or modulo by zero");
  const auto size = static_cast<int64_t>(items.size());
  const JinjaValue fill = call.Or(1, JinjaValue::None());
  Items result;
  int64_t begin = 0;
  for (int64_t slice = 0; slice < slices; ++slice) {
    const bool longer = slice < size % slices;
    const int64_t end = begin + size / slices + longer;
    Items part(items.begin() + begin, items.begin() + end);
    if (!fill.is_none() && !longer) part.push_back(fill);
    MT_ASSIGN_OR_RETURN(JinjaValue list, call.runtime.MakeList(std::move(part)));
    result.push_back(std::move(list));
    begin = end;
  }
  return GeneratorOf(call.runtime, std::move(result));
}

Result Attr(Call& call) {
  MT_ASSIGN_OR_RETURN(const std::string_view name, call.TextAt(0));
  if (call.self.is_undefined()) return UndefinedError(call.self);
  MT_ASSIGN_OR_RETURN(std::optional<JinjaValue> found,
                      FindAttribute(call.runtime, call.self, name));
  if (found.has_value()) return *std::move(found);
  return call.runtime.MakeUndefined(absl::StrCat("'", TypeName(call.self),
                                                 " object' has no attribute '",
                                                 std::string(name.substr(0, 100)), "'"));
}

constexpr Builtin kFilters[] = {
    {"attr", "name", Attr},
    {"batch", "linecount fill_with?", Batch},
    {"count", "", Length},
    {"dictsort", "case_sensitive? by? reverse?", DictSort},
    {"first", "", First},
    {"groupby", "attribute default? case_sensitive?", GroupBy},
    {"items", "", ItemsOf},
    {"join", "d? attribute?", Join},
    {"last", "", Last},
    {"length", "", Length},
    {"list", "", List},
    {"max", "case_sensitive? attribute?", Extreme<Operator::kGreater>},
    {"min", "case_sensitive? attribute?", Extreme<Operator::kLess>},
    {"reverse", "", Reverse},
    {"slice", "slices fill_with?", Slice},
    {"sort", "reverse? case_sensitive? attribute?", Sort},
    {"sum", "attribute? start?", Sum},
    {"unique", "case_sensitive? attribute?", Unique},
};

}  // namespace

absl::Span<const Builtin> SequenceFilters() { return kFilters; }

}  // namespace megatrain::jinja
