// Decoder turns tokens into text, as the decoders of `tokenizers` (Hugging Face's library) do.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_DECODER_H_
#define MEGATRAIN_ENGINE_TOKENIZER_DECODER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/text/split_regex.h"

namespace megatrain {

// A chain of steps, each of which rewrites a list of tokens. At the end the tokens are joined,
// without spaces if there is a step or JoinWithoutSpaces was called, else by spaces. Bytes that are
// not UTF-8 stay as they are; `tokenizers` replaces them by U+FFFD. Thread safety: const methods
// may be called from several threads.
class Decoder {
 public:
  // Makes Decode join tokens without spaces even if there is no step. A Sequence of `tokenizers`
  // that holds no decoder does so too.
  void JoinWithoutSpaces() { joins_without_spaces_ = true; }
  // Each of these adds a step.
  //
  // ByteLevel: turns characters back into bytes (byte_unicode.h) and joins all tokens. A token with
  // a character that stands for no byte stays as it is.
  void AddByteLevel() { Add(Kind::kByteLevel); }
  // ByteFallback: makes one token of neighbouring byte tokens ("<0x0A>").
  void AddByteFallback() { Add(Kind::kByteFallback); }
  // Fuse: joins all tokens.
  void AddFuse() { Add(Kind::kFuse); }
  // Strip: removes up to `start` times `content` from each token's beginning, and up to `stop`
  // times from its end. REQUIRES: `content` is not empty.
  void AddStrip(std::string_view content, size_t start, size_t stop);
  // Replace: replaces the matches of `from` in each token, from left to right. A token that is not
  // well-formed UTF-8 stays as it is. The rest of a token stays as it is if matching gives up, or
  // once the result so far with another `to` would be longer than both 1 MiB and the token.
  // REQUIRES: `from` is not null.
  void AddReplace(std::unique_ptr<SplitRegex> from, std::string_view to);
  // Metaspace: replaces each `mark` by a space. With `prepends` it removes the marks of the first
  // token instead.
  void AddMetaspace(std::string_view mark, bool prepends);
  // WordPiece: removes `prefix` from each token but the first, and puts a space before those that
  // do not begin with it. With `cleanup` it also removes, in every token, the spaces before any of
  // ".?!,", before English contractions and around a lone "'", and makes " don't" of " do not".
  void AddWordPiece(std::string_view prefix, bool cleanup);
  // BPEDecoder: replaces each `suffix` by a space, and removes it in the last token.
  void AddSuffix(std::string_view suffix);

  // Returns the text of `tokens`, which are written as in the vocabulary.
  std::string Decode(std::vector<std::string> tokens) const;

 private:
  enum class Kind {
    kByteLevel,
    kByteFallback,
    kFuse,
    kStrip,
    kReplace,
    kMetaspace,
    kWordPiece,
    kSuffix
  };
  struct Step {
    Kind kind;
    std::string from, to;
    size_t start = 0, stop = 0;
    bool flag = false;  // kMetaspace: prepends; kWordPiece: cleanup
    std::unique_ptr<SplitRegex> regex;
  };
  Step* Add(Kind kind);
  static void Apply(const Step& step, std::vector<std::string>* tokens);

  std::vector<Step> steps_;
  bool joins_without_spaces_ = false;  // tokens are joined without spaces
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_DECODER_H_
