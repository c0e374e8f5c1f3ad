// Normalizer rewrites a text before it is cut into words, as the normalizers of `tokenizers`
// (Hugging Face's library) do.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_NORMALIZER_NORMALIZER_H_
#define MEGATRAIN_ENGINE_TOKENIZER_NORMALIZER_NORMALIZER_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "engine/tokenizer/normalizer/precompiled_charsmap.h"
#include "engine/tokenizer/normalizer/unicode_form.h"
#include "engine/tokenizer/text/character_table.h"
#include "engine/tokenizer/text/offset_runs.h"
#include "engine/tokenizer/text/split_regex.h"

namespace megatrain {

// The patterns by which transformers removes spaces around a text, and puts a mark before a text
// that begins with one.
inline constexpr std::string_view kOuterSpaces = R"(\A +| +\z)";
inline constexpr std::string_view kFirstMark = "\\A\u2581";

// The settings of the normalizer BertNormalizer, in the order in which they are applied.
struct BertNormalization {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
};

// A normalized text. It keeps its memory when it is used again. Users read `text` and `runs`.
struct NormalizedText {
  std::string_view text;  // the original, or `buffer`
  OffsetRuns runs;        // to the original; empty if no step wrote or they were not asked for
  std::string buffer;
  std::string other;  // what the current step writes
  OffsetRuns other_runs;
};

// A chain of steps, each of which rewrites what the step before made. Thread safety: const methods
// may be called from several threads.
class Normalizer {
 public:
  // Each adds the normalizer of that name in `tokenizers` after the others. character_maps.h
  // describes Lowercase, StripAccents, Nmt and the parts of BertNormalizer.
  void AddForm(UnicodeForm form);
  void AddLowercase();
  void AddStripAccents();
  void AddNmt();
  void AddBert(const BertNormalization& bert);
  // Strips white space from the beginning if `left`, and from the end if `right`.
  void AddStrip(bool left, bool right);
  // Puts `text` before a text that is not empty.
  void AddPrepend(std::string_view text);
  // Replace each `from`, or each match of it, by `to`. A text can be cut around matches of
  // kOuterSpaces and kFirstMark, and of a pattern that repeats one character or class. REQUIRES: a
  // `from` that is a text is not empty, and one that is a pattern is not null.
  void AddReplace(std::string_view from, std::string_view to);
  void AddReplace(std::unique_ptr<SplitRegex> from, std::string_view to);
  void AddPrecompiled(PrecompiledCharsmap charsmap);

  // Tabulates the forms of single characters. Normalize then gives the same in less time. Call it
  // when all steps are added.
  void Tabulate();

  bool empty() const { return steps_.empty(); }

  // Normalizes `text` into `out`, whose view is valid as long as `text` and until `out` changes, is
  // copied or moved. `begins` is false for the rest of a text that was cut: nothing is then put
  // before it or stripped from its beginning. Runs are made if `with_runs`. Returns InvalidArgument
  // for a text that would grow to more than 64 times its bytes plus 1 MiB, or beyond 4 GiB. Returns
  // the errors of ApplyForm and SplitRegex::ForEachMatch. REQUIRES: `text` is well-formed UTF-8.
  absl::Status Normalize(std::string_view text, bool begins, bool with_runs,
                         NormalizedText* out) const;

  // Returns true if the parts of `text` before and after `offset` can be normalized separately, the
  // second one with `begins` false, whatever follows `text`. False does not mean that they cannot.
  // REQUIRES: a character begins at `offset`.
  bool CutsAt(std::string_view text, size_t offset) const;

 private:
  enum class Kind {
    kForm,
    kLowercase,
    kStripAccents,
    kNmt,
    kCleanText,
    kIdeographs,
    kNonspacingMarks,
    kStrip,
    kPrepend,
    kReplaceFirst,
    kReplace,
    kReplaceRegex,
    kPrecompiled
  };
  struct Step {
    Kind kind;
    UnicodeForm form = UnicodeForm::kNfc;
    bool left = false, right = false;
    std::string from, to;  // kStrip strips `from`, a space, or all white space if it is empty
    std::unique_ptr<SplitRegex> regex;
    std::unique_ptr<SplitRegex> atom;  // of a regex that repeats one character or class: that one
    std::unique_ptr<PrecompiledCharsmap> charsmap;
    std::unique_ptr<CharacterTable> table;  // of the steps from this one to `table_end`, or null
    size_t table_end = 0;
  };

  Step* Add(Kind kind);
  // Returns true if the step makes of a place what depends on its neighbours.
  static bool LooksAround(const Step& step);
  // Returns the end of the steps from `first` on for which a table can stand.
  size_t TableEnd(size_t first) const;
  // Sets `form` to what the steps [first, last) make of the character. Returns false if that may
  // depend on its neighbours.
  bool FormOf(size_t first, size_t last, std::string_view character, std::string* form) const;
  // Does as Normalize, with the steps [first, last), and without the tables unless `tables`.
  absl::Status RunSteps(size_t first, size_t last, bool tables, std::string_view text, bool begins,
                        bool with_runs, NormalizedText* out) const;
  // Applies the steps for which the table of the step `first` stands. `changed` is as in Apply.
  absl::Status ApplyTable(size_t first, std::string_view text, bool with_runs, RunWriter* out,
                          bool* changed) const;
  // If `changed` is false on return, the text stays as it is, and nothing was written. Steps that
  // look at one character at a time always write.
  absl::Status Apply(const Step& step, std::string_view text, bool begins, RunWriter* out,
                     bool* changed) const;
  // The characters around a place: two before it (`far_before` may be 0 for none) and two behind it
  // (`far_after` may be 0).
  struct Neighbours {
    char32_t far_before, before, after, far_after;
  };
  // Returns the characters there once spaces are put around ideographs.
  static Neighbours WithSpaces(const Neighbours& around);
  // Returns true if the step makes the same of the text's two sides apart. A step that puts a text
  // before another does if the first side is not empty. `is_last` says that no later step looks
  // around.
  static bool StepCuts(const Step& step, const Neighbours& around, bool is_last);
  // Returns the one character that the step makes of `c`; nullopt if it makes none or several.
  std::optional<char32_t> Single(const Step& step, char32_t c) const;

  std::vector<Step> steps_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_NORMALIZER_NORMALIZER_H_
