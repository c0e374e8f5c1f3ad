// Finds the assistant's turns in a rendered conversation, for programs that do not mark them with
// {% generation %}.
//
// A turn is the text that its message adds to the rendering. Three renderings show it:
//   P   the messages before the turn, with the generation prompt
//   T   the messages up to the turn and with it, without the generation prompt
//   F   the whole conversation
// If T begins with P, and F begins with T, the turn is what T has behind P.
//
// The turn is also found in these cases:
// - T lacks one piece of P. The turn is then what follows the rest of P in T. An example is
//   Mistral's programs, which write the system message before a question only as long as no answer
//   follows. If P ends with the missing piece (DeepSeek's prompt ends with <think>), the turn
//   begins with the message's text. If T ends with the piece instead, the turn ends before it.
//   Some of Cohere's programs end every conversation with the same instructions.
// - P ends with a piece where T has another one or none, and the turn has no text that would show
//   its place, as one of tool calls alone. One rendering more, of T with a marker for the whole
//   message, shows it: the turn begins where the marker stands. GLM-4.7's program writes </think>
//   where its prompt has <think>.
// - F lacks one piece of T, but has the end of the turn, with some of the message's text before the
//   end-of-turn mark. The turn is then what F has of it. An example is Qwen3's program, which drops
//   the reasoning of earlier turns. If T begins with the T of the turn before, the search begins
//   behind that turn. So several turns may each lack a piece.
// - F ends the turn otherwise than T, for example because a mark is written after the last turn
//   only. If F has all that T has up to the end of the message's text, the turn ends there.
//
// A turn ends with its end-of-turn mark, and white space behind the mark is not part of it. If only
// white space follows the message's text, this is the mark.
//
// In all other cases the place is uncertain, and Find does not find the turn. It does not find a
// turn with a missing piece either if an earlier turn was not found, because the same text may
// stand in that one. FindMarked then places the turn by two renderings more, with a marker for the
// message's text: what surrounds the marker surrounds that text. Some of Mistral's programs move
// the system message whenever a question is asked again.
#ifndef MEGATRAIN_ENGINE_CHAT_TURN_FINDER_H_
#define MEGATRAIN_ENGINE_CHAT_TURN_FINDER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "engine/chat/target_tokens.h"

namespace megatrain {

// Finds the turns of one rendered conversation, F. Its static functions need no other turns. Each
// function takes time in proportion to its texts. Not thread-safe.
class TurnFinder {
 public:
  // `whole` is F, which must outlive the finder.
  explicit TurnFinder(std::string_view whole) : whole_(whole) {}

  // Returns the place in T where the turn begins, or nullopt if it is uncertain. `prompt` is P,
  // `turn` is T, and `message` is the text of the message. If the piece of P that T lacks stands at
  // the end of T, `turn` loses that.
  static std::optional<size_t> Begin(std::string_view prompt, std::string_view message,
                                     std::string_view& turn);
  // Returns the same place, or nullopt if it is uncertain. `marked_turn` is T with the text
  // `marker` alone in place of the whole message.
  static std::optional<size_t> BeginMarked(std::string_view prompt, std::string_view turn,
                                           std::string_view marked_turn, std::string_view marker);

  // Returns the place of the next turn in F, or nullopt if it is uncertain. Turns must be given in
  // order, without leaving one out. `begin` is the result of Begin or BeginMarked, or nullopt if P
  // or T could not be rendered, and `turn` is T as Begin leaves it.
  std::optional<TextRange> Find(std::optional<size_t> begin, std::string_view turn,
                                std::string_view message);

  // Returns the place of a turn if T begins with P and F begins with T, else nullopt. The turns
  // before it need not be known.
  static std::optional<TextRange> FindExact(std::string_view whole, std::string_view prompt,
                                            std::string_view turn, std::string_view message);

  // Returns the place of a turn in F. `marked_whole` and `marked_turn` are F and T with `marker`,
  // which is in neither F nor T, in place of the message's text. Returns nullopt if one of them
  // does not have the marker once, or if F and the marked F differ in more than the message.
  // Returns nullopt also if what stands before the message does not end with the last character of
  // P that is no white space, the white space behind that in P, and any other white space.
  static std::optional<TextRange> FindMarked(std::string_view whole, std::string_view prompt,
                                             std::string_view marked_whole,
                                             std::string_view marked_turn, std::string_view message,
                                             std::string_view marker);

 private:
  std::optional<TextRange> Place(size_t turn_begin, std::string_view turn, size_t from_turn,
                                 size_t from_whole, std::string_view message) const;

  const std::string_view whole_;
  bool all_found_ = true;
  // The turn before: its T, and the end of what F has of that.
  std::string previous_turn_;
  size_t previous_end_ = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHAT_TURN_FINDER_H_
