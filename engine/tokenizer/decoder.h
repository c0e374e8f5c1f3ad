// The decoders of `tokenizers`: make text of tokens.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_DECODER_H_
#define MEGATRAIN_ENGINE_TOKENIZER_DECODER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/text/split_regex.h"

namespace megatrain {

// A chain of steps, each of which rewrites a list of tokens. Without a step, tokens are joined by
// spaces. Bytes that are not UTF-8 stay as they are; `tokenizers` replaces them by U+FFFD. Thread
// safety: const methods may be called from several threads.
class Decoder {
 public:
  // Each adds a step. Sequence, which has no step of its own, calls SetChain.
  void SetChain() { chain_ = true; }
  void AddByteLevel() { Add(Kind::kByteLevel); }
  void AddByteFallback() { Add(Kind::kByteFallback); }
  void AddFuse() { Add(Kind::kFuse); }
  // Removes up to `start` characters `content` from each token's beginning and `stop` from its end.
  void AddStrip(std::string_view content, size_t start, size_t stop);
  void AddReplace(std::unique_ptr<SplitRegex> from, std::string_view to);
  // Makes spaces of `mark`, and nothing of those of the first token if `prepends`.
  void AddMetaspace(std::string_view mark, bool prepends);
  void AddWordPiece(std::string_view prefix, bool cleanup);
  // BPEDecoder: makes spaces of `suffix`, and nothing of the last token's.
  void AddSuffix(std::string_view suffix);

  // Returns the text of `tokens`.
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
  bool chain_ = false;  // tokens are joined without spaces
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_DECODER_H_
