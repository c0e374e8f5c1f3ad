// BpeModel cuts words into tokens by byte-pair encoding. Its symbols are bytes (GPT-2, Llama 3,
// Qwen) or characters (SentencePiece, Llama 2).
#ifndef MEGATRAIN_ENGINE_TOKENIZER_MODEL_BPE_MODEL_H_
#define MEGATRAIN_ENGINE_TOKENIZER_MODEL_BPE_MODEL_H_

#include <bitset>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/tokenizer/model/bpe_merge.h"
#include "engine/tokenizer/model/bpe_seams.h"
#include "engine/tokenizer/model/token_model.h"

namespace megatrain {

// The settings of a BPE model in tokenizer.json.
struct BpeSettings {
  bool byte_level = false;  // symbols are bytes; the vocabulary writes them as byte_unicode.h says
  bool byte_fallback = false;  // a character that is no token becomes the tokens of its bytes
  bool ignore_merges = false;  // a word that is a token is not merged
  bool fuse_unknown = false;   // neighbouring unknown characters become one token
  std::optional<int32_t> unknown_id;  // without one, unknown characters are left out
  // The vocabulary writes the prefix before every character of a word but the first, and the suffix
  // after the last.
  std::string continuing_prefix;
  std::string end_suffix;
};

// The symbols of a word are its bytes or characters before any rule merges them. A seam is a place
// that no rule joins (bpe_seams.h).
class BpeModel : public TokenModel {
 public:
  // REQUIRES: `seams` was given every rule of `merges`, and ids of `vocabulary` are not negative.
  BpeModel(TextMap<int32_t> vocabulary, BpeMerges merges, BpeSeams seams, BpeSettings settings);

  // Never fails. Cuts the word at its seams, and looks short stretches between seams up in
  // `buffers->words`. With a prefix or suffix it looks for no seams. Takes time linear in a long
  // stretch if bpe_settled.cc finds places at which to cut it.
  absl::Status Encode(std::string_view word, const WordState& state,
                      ModelBuffers* buffers) const override;
  absl::StatusOr<size_t> EncodeOpen(std::string_view word, absl::FunctionRef<bool(size_t)> may_cut,
                                    WordState* state, ModelBuffers* buffers) const override;

 private:
  // A word, or a part of one.
  struct Word {
    std::string_view text;
    bool begun;  // a part was before it
    bool open;   // another follows
  };

  // Sets `symbols` to the tokens of the bytes [begin, end), as if nothing were around them.
  void MergePart(const Word& word, size_t begin, size_t end, std::vector<TokenAt>* symbols) const;
  // Append the tokens of `word`: Merge those of the bytes [begin, end), Cut those of the stretches
  // between its seams.
  void Merge(const Word& word, size_t begin, size_t end, ModelBuffers* buffers) const;
  void Cut(const Word& word, ModelBuffers* buffers) const;
  // Appends the tokens of the beginning of the bytes [begin, end) that are the same whatever
  // follows `end`, up to a place for which may_cut is true. Returns that place; `begin` if none is
  // found. REQUIRES: no token reaches across `begin`.
  size_t MergeSettled(const Word& word, size_t begin, size_t end,
                      absl::FunctionRef<bool(size_t)> may_cut, ModelBuffers* buffers) const;
  // Returns the places in [begin, end] at which the next token may begin when [begin, end) is cut
  // into tokens and the word goes on after it. It may return other places too, which do no harm.
  std::vector<size_t> NextBegins(const Word& word, size_t begin, size_t end) const;
  // Returns true if tokens end at tokens[token].begin whatever follows. `tokens` are those of a
  // part of the word, and `next` is NextBegins of that part, whose order may change.
  bool IsSettled(const Word& word, const std::vector<TokenAt>& tokens, size_t token,
                 std::vector<size_t>* next, std::vector<TokenAt>* symbols) const;
  // Returns true if the symbol at `at` becomes one token with unknown ones around it.
  bool FusesAt(const Word& word, size_t at) const;
  size_t UnknownEnd(const Word& word) const;  // of the run of such symbols at the beginning
  // Does as EncodeOpen for a word that ends with a run of such symbols, within which it is cut.
  size_t CutUnknown(const Word& word, absl::FunctionRef<bool(size_t)> may_cut, WordState* state,
                    ModelBuffers* buffers) const;
  // Returns true if no unknown symbol may reach across the place.
  bool Separates(const Word& word, size_t place) const;
  size_t SymbolBefore(std::string_view text, size_t at) const;  // where the one before `at` begins
  bool IsKnown(const Word& word, size_t at) const;              // the symbol at `at` has a token
  // Returns true if a token, as the vocabulary writes it, begins with `text` and is longer.
  bool BeginsLongerToken(std::string_view text) const;
  // Append the symbols of these bytes, before any rule is applied.
  void AddBytes(std::string_view word, size_t begin, size_t end,
                std::vector<TokenAt>* symbols) const;
  void AddCharacters(const Word& word, size_t begin, size_t end,
                     std::vector<TokenAt>* symbols) const;
  // Sets `id` if the word is a token that is not merged.
  bool IsToken(std::string_view word, int32_t* id) const;
  // Returns the token of the character at `at`, with prefix and suffix; -1 if it is none. `text` is
  // set to the character with its prefix and suffix if there are such.
  int32_t CharacterId(const Word& word, size_t at, size_t length, std::string* text) const;
  // Appends the tokens of the bytes of `text`; false, with no change, if one has none.
  bool FallBack(std::string_view text, uint32_t begin, std::vector<TokenAt>* symbols) const;
  char32_t SymbolAt(std::string_view word, size_t at) const;  // a byte or a character
  // Returns true if no token reaches across the place between two neighbouring symbols.
  bool IsSeam(char32_t before, char32_t after) const;
  int32_t PlainId(char32_t c) const;  // without prefix and suffix

  const BpeMerges merges_;
  const BpeSeams seams_;
  std::bitset<256 * 256> byte_seams_;  // IsSeam of pairs of bytes, with byte_level
  const BpeSettings settings_;
  int32_t byte_ids_[256];  // of a byte: byte-level or "<0x..>" tokens; -1: none
  bool all_bytes_ = true;  // every byte has a token
  bool plain_;             // neither prefix nor suffix
  size_t longest_ = 0;     // bytes of the longest token in a word
  int32_t ascii_ids_[128];
  absl::flat_hash_map<char32_t, int32_t> character_ids_;
  TextMap<int32_t> words_;  // with ignore_merges and byte_level: tokens as bytes
  // The tokens in the order of their texts, made when they are first needed.
  mutable std::once_flag sorted_once_;
  mutable std::vector<std::string_view> sorted_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_MODEL_BPE_MODEL_H_
