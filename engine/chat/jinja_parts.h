// A Jinja program taken apart, so that it can be compared with one that is known.
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

// The parts of a program, in order, are read one after the other. A part is a tag, "{%if x%}" or
// "{{x}}", or text that the program writes outside of its tags. Comments are no parts.
//
// Tags have one form. White space is dropped, but for one space between a word, a string or a
// closing bracket and a word or string behind it. Strings are in single quotes; a line feed in them
// is written \n and a single quote \'. x['name'] is x.name. The signs that control white space are
// gone, but what they do is done: text is what they leave of it, with the settings that chat
// templates are rendered with (trim_blocks and lstrip_blocks).
class JinjaParts {
 public:
  // InvalidArgument if a tag or a string has no end. Unimplemented for {% raw %}.
  static absl::StatusOr<JinjaParts> Parse(std::string_view program);

  // The part that is read next; "" behind the last.
  std::string_view next() const { return done() ? "" : std::string_view(parts_[next_]); }
  bool done() const { return next_ == parts_.size(); }
  // Whether text is written outside of the tags.
  bool writes_text() const;

  // Reads the next part if it is `part`.
  bool Take(std::string_view part);
  // Reads these parts one after the other; at the first that is not there it stops and is false.
  bool TakeAll(std::initializer_list<std::string_view> parts);
  // Reads a raise_exception, whatever its text.
  bool TakeRaise();
  // Behind an `if`, `elif` or `else`: reads its branch, up to the tag that ends it. False if none
  // does.
  bool SkipBranch();

 private:
  explicit JinjaParts(std::vector<std::string> parts) : parts_(std::move(parts)) {}

  std::vector<std::string> parts_;
  size_t next_ = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_JINJA_PARTS_H_
