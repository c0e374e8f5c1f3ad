// Splits a Jinja program into normalised parts, so that it can be compared with a known program
// whatever its layout.
#ifndef MEGATRAIN_ENGINE_CHAT_JINJA_PARTS_H_
#define MEGATRAIN_ENGINE_CHAT_JINJA_PARTS_H_

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace megatrain {

// A cursor over the parts of a program. A part is a tag, "{%if x%}" or "{{x}}", or a text that the
// program writes outside of its tags. Comments are left out.
//
// Tags are normalised:
// - White space is dropped. One space stays between a word, a string or a closing bracket and a
//   word or string that follows it.
// - Strings are in single quotes, with \n for a line feed and \' for a single quote.
// - x['name'] becomes x.name.
//
// White-space control signs are applied to the text and removed. trim_blocks and lstrip_blocks are
// applied too, because chat templates are rendered with them.
class JinjaParts {
 public:
  // Returns InvalidArgument if a tag or a string has no end, and Unimplemented for {% raw %}.
  // `program` is used during the call only.
  static absl::StatusOr<JinjaParts> Parse(std::string_view program);

  // Returns the part at the cursor without moving it, or "" after the last.
  std::string_view next() const { return done() ? "" : std::string_view(parts_[next_]); }
  bool done() const { return next_ == parts_.size(); }
  // Returns true if any part is text outside of the tags.
  bool writes_text() const;

  // Moves past the next part and returns true if it equals `part`; otherwise returns false.
  bool Take(std::string_view part);
  // Takes `parts` in order and returns true. At the first that does not match it stops, keeps its
  // place there and returns false.
  bool TakeAll(std::initializer_list<std::string_view> parts);
  // Moves past the next part and returns true if it is a raise_exception tag with any text;
  // otherwise returns false.
  bool TakeRaise();
  // Skips the branch of an `if`, `elif` or `else`, up to the tag that ends it. Returns false if
  // there is no such tag. REQUIRES: the part before the cursor is that `if`, `elif` or `else`.
  bool SkipBranch();

 private:
  explicit JinjaParts(std::vector<std::string> parts) : parts_(std::move(parts)) {}

  std::vector<std::string> parts_;
  size_t next_ = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_JINJA_PARTS_H_
