// WordCache remembers the tokens of short words, because a text repeats most of its words.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_MODEL_WORD_CACHE_H_
#define MEGATRAIN_ENGINE_TOKENIZER_MODEL_WORD_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace megatrain {

// A token and the byte offset in the word at which it begins.
struct TokenAt {
  int32_t id;
  uint32_t begin;
};

// A hash table of a fixed number of slots. A word takes over the slot of an earlier word with the
// same hash. Entries do not name their model, so each model needs a cache of its own. Not
// thread-safe.
class WordCache {
 public:
  static constexpr size_t kBytesMax = 23;  // longer words are not remembered
  static constexpr size_t kTokensMax = 8;  // nor are words of more tokens, or of none

  // Appends the tokens of `text` to `tokens`. `text` begins at byte `offset` of its word. If the
  // tokens are not remembered, calls encode(), which must append them, and remembers them. `whole`
  // says that `text` is a whole word; a part of one may have other tokens. REQUIRES: `text` is not
  // empty, and the word has less than 4 GiB.
  template <typename Encode>
  void Remember(std::string_view text, bool whole, size_t offset, std::vector<TokenAt>* tokens,
                const Encode& encode) {
    if (text.size() > kBytesMax) return encode();
    const Key key(text, whole);
    if (Find(key, static_cast<uint32_t>(offset), tokens)) return;
    const size_t first = tokens->size();
    encode();
    Put(key, static_cast<uint32_t>(offset), tokens->data() + first,
        tokens->data() + tokens->size());
  }

  // Prefetches into the processor's cache what Remember will read for this text.
  void Prefetch(std::string_view text, bool whole) const {
    if (text.size() > kBytesMax || slots_.empty()) return;
    __builtin_prefetch(&slots_[Hash(Key(text, whole))]);
  }

 private:
  static constexpr int kSlotBits = 16;  // 4 MiB
  static constexpr int32_t kNone = -1;
  struct Key {
    Key(std::string_view text, bool whole);
    // The bytes, zeros behind them, and in the last byte their number and, as its highest bit,
    // `whole`.
    uint64_t words[3];
  };
  struct alignas(64) Slot {
    uint64_t key[3] = {};     // of no word: every word has a length
    int32_t ids[kTokensMax];  // kNone behind the last
    uint8_t begins[kTokensMax];
  };

  static size_t Hash(const Key& key) {
    constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio
    uint64_t hash = key.words[0] * kOdd;
    hash = ((hash ^ hash >> 32) ^ key.words[1]) * kOdd;
    hash = ((hash ^ hash >> 32) ^ key.words[2]) * kOdd;
    return hash >> (64 - kSlotBits);
  }

  // Returns false, with no change, if the text is not remembered.
  bool Find(const Key& key, uint32_t offset, std::vector<TokenAt>* tokens) const {
    if (slots_.empty()) return false;
    const Slot& slot = slots_[Hash(key)];
    if (std::memcmp(slot.key, key.words, sizeof(slot.key)) != 0) return false;
    for (size_t i = 0; i < kTokensMax && slot.ids[i] != kNone; ++i) {
      tokens->push_back({slot.ids[i], offset + slot.begins[i]});
    }
    return true;
  }
  void Put(const Key& key, uint32_t offset, const TokenAt* first, const TokenAt* last);

  std::vector<Slot> slots_;  // empty until a word is remembered
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_MODEL_WORD_CACHE_H_
