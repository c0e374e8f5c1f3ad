#include "engine/tokenizer/model/word_cache.h"

#include <algorithm>

namespace megatrain {
namespace {

template <typename Word>
uint64_t Load(const char* at) {
  Word word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

}  // namespace

WordCache::Key::Key(std::string_view text, bool whole) : words{} {
  const char* const data = text.data();
  const size_t size = text.size();
  // The last load overlaps the one before it, and the bytes that both have are shifted out.
  if (size >= 8) {
    words[0] = Load<uint64_t>(data);
    if (size > 16) {
      words[1] = Load<uint64_t>(data + 8);
      words[2] = Load<uint64_t>(data + size - 8) >> 8 * (24 - size);
    } else if (size > 8) {
      words[1] = Load<uint64_t>(data + size - 8) >> 8 * (16 - size);
    }
  } else if (size >= 4) {
    words[0] = Load<uint32_t>(data) | Load<uint32_t>(data + size - 4) << 8 * (size - 4);
  } else {
    for (size_t i = 0; i < size; ++i) words[0] |= Load<uint8_t>(data + i) << 8 * i;
  }
  words[2] |= (uint64_t{size} | (whole ? 0x80 : 0)) << 56;
}

void WordCache::Put(const Key& key, uint32_t offset, const TokenAt* first, const TokenAt* last) {
  if (first == last || static_cast<size_t>(last - first) > kTokensMax) return;
  if (slots_.empty()) slots_.resize(size_t{1} << kSlotBits);
  Slot& slot = slots_[Hash(key)];
  std::copy(key.words, key.words + 3, slot.key);
  std::fill(slot.ids, slot.ids + kTokensMax, kNone);
  for (size_t i = 0; first + i < last; ++i) {
    slot.ids[i] = first[i].id;
    slot.begins[i] = static_cast<uint8_t>(first[i].begin - offset);
  }
}

}  // namespace megatrain
