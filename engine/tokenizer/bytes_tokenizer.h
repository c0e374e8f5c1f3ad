// The tokenizer that needs no file: an id is a byte's value, three special tokens follow.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_BYTES_TOKENIZER_H_
#define MEGATRAIN_ENGINE_TOKENIZER_BYTES_TOKENIZER_H_

#include <memory>
#include <string>

#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

inline constexpr int32_t kBytesBosId = 256;
inline constexpr int32_t kBytesEosId = 257;
inline constexpr int32_t kBytesPadId = 258;
inline constexpr int64_t kBytesVocabulary = 259;

// How the special tokens are written in text.
inline constexpr char kBytesBosText[] = "<|bos|>";
inline constexpr char kBytesEosText[] = "<|eos|>";
inline constexpr char kBytesPadText[] = "<|pad|>";

// Encode and Decode as in tokenizer.h: the three special tokens are recognised in text, as
// `tokenizers` does with the tokenizer.json below, so that both give the same ids for any text.
std::shared_ptr<const Tokenizer> MakeBytesTokenizer();

// tokenizer.json and tokenizer_config.json of a Hugging Face directory that uses this tokenizer:
// byte-level BPE without merges, loadable by `transformers`. The configuration carries the plain
// chatml template.
std::string BytesTokenizerJson();
std::string BytesTokenizerConfigJson();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_BYTES_TOKENIZER_H_
