// Finds the assistant's turns in a rendered conversation, for programs that do not mark them with
// {% generation %}.
//
// A turn is the text that its message adds to the rendering. Three renderings show it:
//   P   the messages before the turn, with the generation prompt, which asks for an answer
//   T   the messages up to the turn and with it, without the generation prompt
//   F   the whole conversation
// If T begins with P, and F begins with T, the turn is what T has behind P.
//
// The turn is also found in the cases below. There, the message's text is what stands behind its
// last </think>, without white space at its ends, because programs rewrite reasoning. White space
// is ' ', \t, \r and \n.
// - T lacks one piece of P. The turn is then what follows the rest of P in T. Mistral's programs
//   write the system message only before a question that has no answer yet:
//     P "[INST] Be brief. Hi[/INST]"   T "[INST] Hi[/INST] Hello</s>"   the turn is " Hello</s>"
//   If P ends with the missing piece, the turn begins with the message's text, as in DeepSeek's:
//     P "<A><think>"   T "<A>Hello<E>"   the turn is "Hello<E>"
//   If T ends with the piece instead, the turn ends before it. Some of Cohere's programs end every
//   conversation with the same instructions:
//     P "<U>Hi<I>rules<A>"   T "<U>Hi<A>Hello<I>rules"   the turn is "Hello"
// - P ends with a piece where T has another one or none, and the turn has no text that would show
//   its place, as one of tool calls alone. One rendering more, of T with a marker for the whole
//   message, shows it: the turn begins where the marker stands. In GLM-4.7's program:
//     P "<A><think>"   T "<A></think><call>"   marked T "<A></think>MARK"   the turn is "<call>"
// - F lacks one piece of T, but has the end of the turn, with some of the message's text before the
//   end-of-turn mark. The turn is then what F has of it. Qwen3's program drops the reasoning of
//   earlier turns:
//     T "<A><think>Hm</think>Hello<E>"   F "<A>Hello<E><U>..."   the turn is "Hello<E>"
//   If T begins with the T of the last turn that Find found, the search begins behind that turn. So
//   several turns may each lack a piece.
// - F ends the turn otherwise than T, as where a mark is written after the last turn only. If F has
//   all that T has up to the end of the message's text, the turn ends there, or behind the first
//   mark in <> or [] if both have that next. Phi-3's program ends conversations with one more:
//     T "<A>Hello<E>"   F "<A>Hello<U>..."   the turn is "Hello"
//     T "<A>Hello<E></s>"   F "<A>Hello<E><U>..."   the turn is "Hello<E>"
//
// A turn ends with its end-of-turn mark, such as <E> above. White space behind the mark is not part
// of it. If only white space follows the message's text, the white space is the mark.
//
// In all other cases the place is uncertain, and Find does not find the turn. It does not find a
// turn with a missing piece either if an earlier turn was not found, because the same text may
// stand in that one. FindMarked then places the turn by two renderings more, with a marker for the
// message's content: what surrounds the marker surrounds the content. Mistral's programs that move
// the system message whenever a question is asked again need this.
#ifndef MEGATRAIN_ENGINE_CHAT_TURN_FINDER_H_
#define MEGATRAIN_ENGINE_CHAT_TURN_FINDER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "engine/chat/target_tokens.h"

namespace megatrain {

// Finds the turns of one rendered conversation, F. Its static functions need no other turns. In all
// functions `message` is the content of the turn's message, with its reasoning and white space if
// it has them. Each function takes time in proportion to its texts. Not thread-safe.
class TurnFinder {
 public:
  // `whole` is F, which must outlive the finder.
  explicit TurnFinder(std::string_view whole) : whole_(whole) {}

  // Returns the place in T where the turn begins, or nullopt if it is uncertain. `prompt` is P and
  // `turn` is T. If the piece of P that T lacks stands at the end of T, `turn` loses that.
  static std::optional<size_t> Begin(std::string_view prompt, std::string_view message,
                                     std::string_view& turn);
  // Returns the same place, or nullopt if it is uncertain. `marked_turn` is T with the text
  // `marker` alone in place of the whole message. REQUIRES: `marker` is in neither T nor P.
  static std::optional<size_t> BeginMarked(std::string_view prompt, std::string_view turn,
                                           std::string_view marked_turn, std::string_view marker);

  // Returns the place of the next turn in F, or nullopt if it is uncertain. Turns must be given in
  // order, without leaving one out. `begin` is the result of Begin or BeginMarked, or nullopt if P
  // or T could not be rendered, and `turn` is T as Begin leaves it, or "" without T.
  std::optional<TextRange> Find(std::optional<size_t> begin, std::string_view turn,
                                std::string_view message);

  // Returns the place of a turn, which may be empty, if T begins with P and F begins with T, else
  // nullopt. The turns before it need not be known.
  static std::optional<TextRange> FindExact(std::string_view whole, std::string_view prompt,
                                            std::string_view turn, std::string_view message);

  // Returns the place of a turn in F. `marked_whole` and `marked_turn` are F and T with `marker`,
  // which is in neither F nor T, in place of the content. The range may overlap that of another
  // turn: the caller must compare. Returns nullopt if one of them does not have the marker once, or
  // if F and the marked F differ in more than the content. Returns nullopt also unless F has before
  // the content what P ends with: the last character that is no white space, with the white space
  // behind it. More white space may follow there.
  static std::optional<TextRange> FindMarked(std::string_view whole, std::string_view prompt,
                                             std::string_view marked_whole,
                                             std::string_view marked_turn, std::string_view message,
                                             std::string_view marker);

 private:
  std::optional<TextRange> Place(size_t turn_begin, std::string_view turn, size_t from_turn,
                                 size_t from_whole, std::string_view answer) const;

  const std::string_view whole_;
  bool all_found_ = true;
  // The turn before: its T, and the end of what F has of that.
  std::string previous_turn_;
  size_t previous_end_ = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_TURN_FINDER_H_
