// Cuts text into words by the pre-tokenizers of `tokenizers` (Hugging Face's library). A TokenModel
// then encodes each word separately.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_SPLIT_PRE_TOKENIZER_H_
#define MEGATRAIN_ENGINE_TOKENIZER_SPLIT_PRE_TOKENIZER_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/tokenizer/split/character_classes.h"
#include "engine/tokenizer/text/match_follower.h"
#include "engine/tokenizer/text/offset_runs.h"
#include "engine/tokenizer/text/split_regex.h"

namespace megatrain {

// The treatment of a match by a split, as in SplitDelimiterBehavior of `tokenizers`. The examples
// split "a--b" at the matches of "-".
enum class SplitBehavior {
  kIsolated,            // it is a piece: a|-|-|b
  kRemoved,             // it belongs to no piece: a|b
  kMergedWithPrevious,  // it is joined to the text before it, unless that is a match: a-|-|b
  kMergedWithNext,      // it is joined to the text after it, unless that is a match: a|-|-b
  kContiguous,          // it is one piece with the matches next to it: a|--|b
};

// The rules for putting a mark before a text that does not begin with one. These are the values of
// prepend_scheme of the pre_tokenizer Metaspace.
enum class MarkScheme {
  kFirst,   // only at the beginning of the original text
  kAlways,  // before every piece
  kNever,
};

// The bytes [begin, end) of a text.
using TextPiece = std::pair<size_t, size_t>;

// A chain of steps, each of which cuts or rewrites every piece that the steps before it left.
// Without steps a text is one word.
//
// Thread safety: const methods may be called from several threads.
class PreTokenizer {
 public:
  // Adds a step that splits at the matches of a regular expression. With `invert`, matches and the
  // text between them change roles. `single` says that every match is one character that matches
  // whatever is around it; the step is then faster and gives the same words. REQUIRES: `regex` is
  // not null.
  void AddSplit(std::unique_ptr<SplitRegex> regex, SplitBehavior behavior, bool invert,
                bool single = false);
  // Adds a step that splits between characters of different classes.
  void AddClasses(CharacterClasses classes);
  // Adds a step that replaces spaces by `mark`, one character, which is copied, and puts a mark
  // before a piece that begins with neither, as `scheme` says. If `split`, it then cuts before
  // every mark. REQUIRES: `mark` is not empty.
  void AddMetaspace(std::string_view mark, MarkScheme scheme, bool split);
  // Adds a step that puts a space before a piece that does not begin with one.
  void AddPrefixSpace();
  // Adds a step that cuts where the script changes. A character of kAnyScript (ScriptOf) belongs to
  // the piece before it, and is removed if there is none.
  void AddScripts();

  // Returns true if a step depends on where a piece lies in the original text. The `chain` of Cut
  // must then give exact offsets.
  bool needs_offsets() const { return needs_offsets_; }

  // Returns false if AddScripts would remove `c` at the beginning of a text, so that a text must
  // not be cut before it.
  bool MayBegin(char32_t c) const;

  // A match of a split that reaches the end of a text which may go on, so that its end is not known
  // yet: in " aaa" the match of ` ?\w+` may get longer. A word within the match may be cut at a
  // place if a match that begins there will end where this one will, because the rest of the text
  // is then cut into the same words (MatchFollower::EndsAlike).
  struct OpenMatch {
    MatchFollower follower;
    OpenMatch* outer;  // of a split before; null: none
  };
  // A word that Cut found, valid during the call of `give`.
  struct Word {
    std::string_view text;
    size_t begin;  // chain->Original(begin + i) is where byte i of the word is in the original
    OffsetChain* chain;  // not null
    bool open;           // the text may go on, and this word with it
    OpenMatch* matches = nullptr;
    bool may_begin = true;    // the rest of the text from here on would be cut into the same words
    size_t prefix_bytes = 0;  // the bytes of `text` that were put before it

    // Returns true if the rest of an open word from `offset` on, with what follows it, would be cut
    // into words as it is in the whole text.
    bool CutsAt(size_t offset) const {
      for (OpenMatch* match = matches; match != nullptr; match = match->outer) {
        if (!match->follower.EndsAlike(begin + offset)) return false;
      }
      return true;
    }
  };

  // Calls give(word) for the words of `text`, from left to right. `chain` maps `text` to the
  // original text; it must not be null, and is changed, so each thread needs one of its own.
  // `begins` says that nothing of the original was cut off before `text` (!PieceState::continued),
  // so that a mark or a space may be put before it. `in_word` says that `text` begins with the rest
  // of a word that was cut (WordState::begun).
  //
  // If `open`, the text may go on. Only words that are the same whatever follows are then given,
  // and the last word, with Word::open, if it begins there whatever follows. An open word without
  // text is no word but a place at which the text can be cut, if CutsAt(0). All other words have
  // text.
  //
  // Memory does not grow with the number of words if all splits have kIsolated or kRemoved and no
  // step is of AddMetaspace. Returns the errors of SplitRegex::ForEachMatch and of `give`, after
  // which no more words are given. REQUIRES: `text` is well-formed UTF-8.
  absl::Status Cut(std::string_view text, OffsetChain* chain, bool begins, bool in_word, bool open,
                   absl::FunctionRef<absl::Status(const Word&)> give) const;

 private:
  struct Step {
    std::unique_ptr<SplitRegex> regex;  // null: the step is another one than a split by it
    std::unique_ptr<CharacterClasses> classes;
    bool scripts = false;
    SplitBehavior behavior = SplitBehavior::kIsolated;
    bool invert = false;
    bool single = false;
    std::string mark;  // empty: a prefix space
    MarkScheme scheme = MarkScheme::kAlways;
    bool split = false;
  };
  struct Walk;

  absl::Status From(size_t step, TextPiece piece, bool open, const Walk& walk) const;
  // Gives a place at which the text can be cut.
  static absl::Status GivePlace(size_t place, const Walk& walk);
  absl::Status SplitPiece(size_t step, TextPiece piece, bool open, const Walk& walk) const;
  absl::Status JoinedPieces(size_t step, TextPiece piece, bool open, const Walk& walk) const;
  absl::Status ClassPieces(size_t step, TextPiece piece, bool open, const Walk& walk) const;
  absl::Status ScriptPieces(size_t step, TextPiece piece, bool open, const Walk& walk) const;
  absl::Status RewritePiece(size_t step, TextPiece piece, bool open, const Walk& walk) const;

  std::vector<Step> steps_;
  bool needs_offsets_ = false;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_SPLIT_PRE_TOKENIZER_H_
