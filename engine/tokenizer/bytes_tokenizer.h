// A tokenizer that needs no file: ids 0 to 255 are the values of bytes, and three special tokens
// follow.
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

// The special tokens as they are written in text.
inline constexpr char kBytesBosText[] = "<|bos|>";
inline constexpr char kBytesEosText[] = "<|eos|>";
inline constexpr char kBytesPadText[] = "<|pad|>";

// Returns the bytes tokenizer. It recognises the special tokens in text. For any text it gives the
// ids that `tokenizers` (Hugging Face's library) gives with BytesTokenizerJson.
std::shared_ptr<const Tokenizer> MakeBytesTokenizer();

// Return the tokenizer.json and tokenizer_config.json of a Hugging Face directory that uses this
// tokenizer: byte-level BPE without merges, which `transformers` can load, and the plain chatml
// template.
std::string BytesTokenizerJson();
std::string BytesTokenizerConfigJson();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_BYTES_TOKENIZER_H_
