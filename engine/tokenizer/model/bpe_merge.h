// Merges the symbols of one word by the rules of byte-pair encoding.
#ifndef MEGATRAIN_ENGINE_TOKENIZER_MODEL_BPE_MERGE_H_
#define MEGATRAIN_ENGINE_TOKENIZER_MODEL_BPE_MERGE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/tokenizer/model/token_model.h"

namespace megatrain {

// The merge rules of a tokenizer. The rule of the lowest rank among those that apply is applied
// first. If it applies at several places, the leftmost comes first. Thread safety: const methods
// may be called from several threads.
class BpeMerges {
 public:
  BpeMerges() { Rehash(16); }

  // Adds a rule of rank `rank` that joins tokens `left` and `right` to `merged`. A later rule for
  // the same pair replaces the earlier one. REQUIRES: ids and rank are not negative, and `rank` is
  // below INT32_MAX.
  void Add(int32_t left, int32_t right, int32_t rank, int32_t merged);

  bool empty() const { return size_ == 0; }

  // Merges `symbols` in place until no rule applies. A merged symbol begins where its left one did.
  // Takes O(n log n) for n symbols, or O(n^2) with a small constant if they are few.
  void Apply(std::vector<TokenAt>* symbols) const;

 private:
  struct Rule {
    uint64_t pair = kNoPair;
    int32_t rank = 0;
    int32_t merged = 0;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};  // no pair, because ids are not negative

  static uint64_t Pair(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  const Rule* Find(int32_t left, int32_t right) const;
  // Sets the pair's bit in filter_.
  void Mark(size_t hash) {
    const size_t bit = hash & filter_mask_;
    filter_[bit / 64] |= uint64_t{1} << bit % 64;
  }
  bool IsMarked(size_t hash) const {
    const size_t bit = hash & filter_mask_;
    return (filter_[bit / 64] >> bit % 64 & 1) != 0;
  }
  void Rehash(size_t slots);
  void ApplyShort(std::vector<TokenAt>* symbols) const;
  void ApplyLong(std::vector<TokenAt>* symbols) const;

  std::vector<Rule> slots_;  // hash table, open addressing; a power of two, at most half full
  size_t mask_ = 0;
  // A bit for each rule, by its hash; eight bits a slot. About half of the pairs that are looked up
  // have no rule, and most of them are told by these few bytes, which stay in a near cache.
  std::vector<uint64_t> filter_;
  size_t filter_mask_ = 0;
  size_t size_ = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TOKENIZER_MODEL_BPE_MERGE_H_
