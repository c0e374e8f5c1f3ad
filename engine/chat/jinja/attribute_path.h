// The argument `attribute` of filters: "address.city", "items.0", an index, or a list "age,name".
#ifndef MEGATRAIN_ENGINE_CHAT_JINJA_ATTRIBUTE_PATH_H_
#define MEGATRAIN_ENGINE_CHAT_JINJA_ATTRIBUTE_PATH_H_

#include <optional>
#include <vector>

#include "engine/chat/jinja/runtime.h"

namespace megatrain::jinja {

class AttributePath {
 public:
  // None is the empty path, which gives the item itself. With `fold` the result is in lower case if
  // it is text. `otherwise`, if it is there and not none, replaces an undefined step.
  static absl::StatusOr<AttributePath> Parse(const JinjaValue& attribute, bool fold,
                                             std::optional<JinjaValue> otherwise = std::nullopt);
  // The paths of a list apart by commas.
  static absl::StatusOr<std::vector<AttributePath>> ParseList(
      const std::optional<JinjaValue>& attribute, bool fold);

  Result Get(Runtime& runtime, JinjaValue item) const;

 private:
  std::vector<JinjaValue> steps_;
  bool fold_ = false;
  std::optional<JinjaValue> otherwise_;
};

// Returns `value`, in lower case if it is text and `fold`.
Result FoldKey(Runtime& runtime, const JinjaValue& value, bool fold);

}  // namespace megatrain::jinja

#endif  // MEGATRAIN_ENGINE_CHAT_JINJA_ATTRIBUTE_PATH_H_
