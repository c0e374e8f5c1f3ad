#include "engine/tokenizer/bytes_tokenizer.h"

#include <algorithm>
#include <array>

#include "engine/tokenizer/model/byte_unicode.h"
#include "engine/tokenizer/text/utf8.h"
#include "nlohmann/json.hpp"

namespace megatrain {
namespace {

constexpr std::array<std::string_view, 3> kSpecials = {kBytesBosText, kBytesEosText, kBytesPadText};

class BytesTokenizer : public Tokenizer {
 public:
  absl::Status Encode(std::string_view text, std::vector<int32_t>* ids) const override {
    return EncodeWithOffsets(text, ids, nullptr);
  }

  absl::Status EncodeWithOffsets(std::string_view text, std::vector<int32_t>* ids,
                                 std::vector<size_t>* offsets) const override {
    if (absl::Status status = CheckUtf8(text); !status.ok()) return status;
    ids->reserve(ids->size() + text.size());
    size_t at = 0;
    while (at < text.size()) {
      if (offsets != nullptr) offsets->push_back(at);
      const int special = text[at] == '<' ? SpecialAt(text.substr(at)) : -1;
      if (special >= 0) {
        ids->push_back(kBytesBosId + special);
        at += kSpecials[special].size();
      } else {
        ids->push_back(static_cast<uint8_t>(text[at++]));
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> EncodePiece(std::string_view text, bool last, PieceState* state,
                                     std::vector<int32_t>* ids) const override {
    // A special token that begins in the last bytes may not be whole.
    size_t size = text.size();
    if (!last) {
      size -= std::min(size, kSpecials[0].size());
      while (size > 0 && (text[size] & 0xc0) == 0x80) --size;
      // Nor is one cut that began before.
      for (size_t back = 1; back < kSpecials[0].size() && back <= size; ++back) {
        const int special = SpecialAt(text.substr(size - back));
        if (special >= 0 && kSpecials[special].size() > back) size -= back;
      }
    }
    if (absl::Status status = Encode(text.substr(0, size), ids); !status.ok()) return status;
    if (size > 0) state->continued = true;
    return size;
  }

  std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const override {
    std::string text;
    for (const int32_t id : ids) {
      if (id >= 0 && id < 256) {
        text.push_back(static_cast<char>(id));
      } else if (id >= kBytesBosId && id < kBytesVocabulary && !skip_special) {
        text += kSpecials[id - kBytesBosId];
      }
    }
    return text;
  }

  std::optional<int32_t> TokenId(std::string_view token) const override {
    for (size_t i = 0; i < kSpecials.size(); ++i) {
      if (token == kSpecials[i]) return kBytesBosId + static_cast<int32_t>(i);
    }
    if (token.size() == 1) return static_cast<uint8_t>(token[0]);
    return std::nullopt;
  }
  std::string TokenText(int32_t id) const override { return Decode({id}, false); }

  int64_t vocabulary() const override { return kBytesVocabulary; }
  int32_t eos_id() const override { return kBytesEosId; }
  int32_t bos_id() const override { return kBytesBosId; }
  int32_t pad_id() const override { return kBytesPadId; }
  // Nothing about it can vary: a constant that changes with its definition does.
  std::string fingerprint() const override { return "bytes-259-v1"; }

 private:
  static int SpecialAt(std::string_view text) {
    for (size_t i = 0; i < kSpecials.size(); ++i) {
      if (text.substr(0, kSpecials[i].size()) == kSpecials[i]) return static_cast<int>(i);
    }
    return -1;
  }
};

}  // namespace

std::shared_ptr<const Tokenizer> MakeBytesTokenizer() { return std::make_shared<BytesTokenizer>(); }

std::string BytesTokenizerJson() {
  using Json = nlohmann::ordered_json;
  Json vocabulary = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    std::string character;
    AppendUtf8(ByteToUnicode(static_cast<uint8_t>(byte)), &character);
    vocabulary[character] = byte;
  }
  Json added = Json::array();
  for (size_t i = 0; i < kSpecials.size(); ++i) {
    added.push_back({{"id", kBytesBosId + static_cast<int32_t>(i)},
                     {"content", kSpecials[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", false}};
  const Json tokenizer = {{"version", "1.0"},
                          {"truncation", nullptr},
                          {"padding", nullptr},
                          {"added_tokens", added},
                          {"normalizer", nullptr},
                          {"pre_tokenizer", byte_level},
                          {"post_processor", nullptr},
                          {"decoder", byte_level},
                          {"model",
                           {{"type", "BPE"},
                            {"dropout", nullptr},
                            {"unk_token", nullptr},
                            {"continuing_subword_prefix", nullptr},
                            {"end_of_word_suffix", nullptr},
                            {"fuse_unk", false},
                            {"byte_fallback", false},
                            {"ignore_merges", false},
                            {"vocab", vocabulary},
                            {"merges", Json::array()}}}};
  return tokenizer.dump(1) + "\n";
}

std::string BytesTokenizerConfigJson() {
  using Json = nlohmann::ordered_json;
  const Json config = {
      {"tokenizer_class", "PreTrainedTokenizerFast"},
      {"bos_token", kBytesBosText},
      {"eos_token", kBytesEosText},
      {"pad_token", kBytesPadText},
      {"clean_up_tokenization_spaces", false},
      {"chat_template",
       "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + "
       "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
       "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"}};
  return config.dump(1) + "\n";
}

}  // namespace megatrain
