// Finds the assistant's turns in a rendered conversation, for programs that do not mark them with
// {% generation %}.
//
// A turn is what rendering gains by it. P is the rendering of the messages before it with the
// generation prompt, and T that of the messages up to it without. The turn is T without P at its
// start, and its place in the rendering of the whole conversation, F, is where T has it. Two
// things may differ, and the turn is found all the same:
// - T lacks one piece of P: what follows P's remaining text is the turn. Mistral's programs write
//   the system message before a question only as long as no answer follows. If that piece ends P
//   (DeepSeek's prompt ends with <think>), the turn begins with the message's text.
// - F lacks one piece of T, but has the end of the turn, with some of the message's text before the
//   end-of-turn mark: the turn is what F has of it. Qwen3's program drops the reasoning of earlier
//   turns. This is looked for behind the turn before, if T begins with that turn's T; so several
//   turns may each lack a piece.
// If the turn's end in F is another than in T (a mark that is written after the last turn only),
// the turn is the message's text, where F has that after P.
//
// A turn ends with its end-of-turn mark: white space behind it is not part of the turn. Where there
// is no mark, because nothing but white space follows the message's text, the white space is the
// mark.
//
// All else is uncertain to Find. So is a turn of which a piece is missing if an earlier turn was
// not found, because the same text may stand there. FindMarked then places the turn by two
// renderings more, with a marker for the message's text: what surrounds the marker surrounds that
// text. Some of Mistral's programs move the system message whenever a question is asked again.
#ifndef MEGATRAIN_ENGINE_CHAT_TURN_FINDER_H_
#define MEGATRAIN_ENGINE_CHAT_TURN_FINDER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace megatrain {

// A stretch of text, as byte offsets [begin, end).
using TextRange = std::pair<size_t, size_t>;

// Takes time in proportion to the texts. Not thread-safe.
class TurnFinder {
 public:
  // `whole` is F, which must outlive the finder.
  explicit TurnFinder(std::string_view whole) : whole_(whole) {}

  // Finds the next turn in F, or nullopt if its place is uncertain. Turns must be given in order,
  // without leaving one out. `prompt` is P, nullopt if it could not be rendered, and `turn` is T.
  // `message` is the text of the message.
  std::optional<TextRange> Find(std::optional<std::string_view> prompt, std::string_view turn,
                                std::string_view message);

  // Finds a turn whose P and T both begin F, whatever is known of the turns before it.
  static std::optional<TextRange> FindExact(std::string_view whole, std::string_view prompt,
                                            std::string_view turn, std::string_view message);

  // Finds a turn by F and T with `marker`, which is in neither of the real ones, in place of the
  // message's text. P must end with what stands before the message, and F may differ from the
  // marked F in the message only.
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
