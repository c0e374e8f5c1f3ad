// Runs the Jinja programs that chat templates of Hugging Face models are written in. A program
// renders the text that apply_chat_template of transformers renders with it, or fails where that
// fails.
//
// The language is that of Jinja2 3.1.6 in transformers' environment: the immutable sandbox, with
// trim_blocks, lstrip_blocks, loop controls, {% generation %}, and transformers' own tojson,
// raise_exception, strftime_now, dict and namespace. Autoescape is off, and there are no other
// templates: include, import and extends are errors when they are reached, as there.
//
// Differences from Python:
// - Integers have 64 bits. A result beyond them is an error.
// - An object that Python prints with its address (a generator, a function) is an error to print.
// - Strings hold no lone surrogates: "\ud800" in a program is an error.
// - Tables of characters are ICU's, which may know a later Unicode than Python's.
// - lipsum, urlize, pprint, random, wordwrap, striptags, xmlattr, str.encode, str.maketrans,
//   str.translate, dict.fromkeys, {% autoescape true %} and the {% block %} functions self and
//   super are not there. Numbers have no method but float.is_integer, and a range has no attributes
//   start, stop and step. The filter urlencode takes no list or dict.
// - int() and float() read ASCII digits only.
// - In bodies of macros, recursive loops, and call, generation, filter and set blocks, and in the
//   condition of `for ... if`, a variable given to Render is seen even if the program sets it later
//   around them. In Jinja it is undefined there.
// - A `loop` that a namespace keeps has no next item and cannot be called once its loop has ended.
#ifndef MEGATRAIN_ENGINE_CHAT_JINJA_JINJA_PROGRAM_H_
#define MEGATRAIN_ENGINE_CHAT_JINJA_JINJA_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/chat/jinja/jinja_value.h"

namespace megatrain {

namespace jinja {
struct Program;
}

// The limits of one rendering. Programs and conversations come from strangers. A rendering beyond a
// limit ends with ResourceExhausted, which names the limit.
struct JinjaLimits {
  // Work: one step is an evaluated node of the program, an item of a sequence that was visited, or
  // 64 bytes of text that were read or written. A step takes up to about 0.1 microseconds.
  int64_t steps_max = 20'000'000;
  // The total size of the strings and containers that the program makes, counted when they are made
  // and never given back. It bounds the memory of a rendering.
  int64_t bytes_max = 256 << 20;
  int64_t output_bytes_max = 64 << 20;  // of the output, and of what a macro or block writes
  // Nested evaluations: expressions, statements, macros and recursive loops within one another. It
  // bounds the stack: a level takes up to about 1 KiB.
  int depth_max = 800;
};

// The settings of one rendering.
struct JinjaOptions {
  JinjaLimits limits;
  // The clock of strftime_now, which gives the civil time in `zone`.
  absl::Time now = absl::UnixEpoch();
  absl::TimeZone zone = absl::UTCTimeZone();
};

// The variables that a program sees, by name. If two have the same name, the last one counts.
using JinjaVariables = std::vector<std::pair<std::string, JinjaValue>>;

// The result of a rendering.
struct JinjaRendered {
  std::string text;
  // The byte ranges [begin, end) of `text` that {% generation %} blocks wrote, in the order in
  // which the blocks ended. They are what AssistantTracker of transformers notes: a block that
  // writes inside a macro or into {% set %} is counted from the end of the text at that time. So
  // ranges of such programs may overlap, or end beyond the text.
  std::vector<std::pair<size_t, size_t>> generation;
  bool generation_moved = false;  // a range does not hold what its block wrote
};

// A parsed program. A copy shares it. Thread safety: const methods may be called from several
// threads.
class JinjaProgram {
 public:
  // The most bytes of a program's text.
  static constexpr size_t kTextBytesMax = 4 << 20;

  // Returns InvalidArgument for text that is not a program: "line 3: expected ...". This includes
  // unknown filters and tests (outside of `if`, as in Jinja), expressions or blocks nested too
  // deep, and, with no line in the message, invalid UTF-8 and more than kTextBytesMax bytes. `text`
  // is used during the call only.
  static absl::StatusOr<JinjaProgram> Parse(std::string_view text);

  // Renders the program. The arguments are used during the call only. Returns
  //   FailedPrecondition  the program called raise_exception. The message is exactly the program's,
  //                       with nothing before or after it.
  //   InvalidArgument     the program failed: "line 3: 'foo' is undefined".
  //   ResourceExhausted   a limit was reached: "line 3: ... more than N steps".
  absl::StatusOr<JinjaRendered> Render(const JinjaVariables& variables,
                                       const JinjaOptions& options = {}) const;

  // Returns true if the program has a {% generation %} block.
  bool has_generation() const;
  // Returns true if the program names strftime_now, so that its text may depend on the clock.
  bool uses_clock() const;
  // Returns true if `name` occurs in the program as a variable, an attribute, a keyword argument or
  // a whole string literal. Otherwise the program reads no variable or key of that name, unless it
  // computes the name, goes through all keys, or has the name in a path (map(attribute='a.name')).
  bool mentions(std::string_view name) const;
  // Returns true if `name` occurs as an attribute or a whole string literal. Otherwise the program
  // reads no key of that name, with the same exceptions.
  bool reads_key(std::string_view name) const;

 private:
  explicit JinjaProgram(std::shared_ptr<const jinja::Program> program)
      : program_(std::move(program)) {}
  std::shared_ptr<const jinja::Program> program_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_JINJA_JINJA_PROGRAM_H_
