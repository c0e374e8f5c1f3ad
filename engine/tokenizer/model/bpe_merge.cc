#include "engine/tokenizer/model/bpe_merge.h"

#include <algorithm>
#include <limits>
#include <queue>

namespace megatrain {
namespace {

// Words up to this many symbols are scanned for the best rule: most are shorter than ten, where a
// heap costs more than it saves.
constexpr size_t kShortWord = 48;
constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();

size_t Hash(uint64_t pair) {
  pair ^= pair >> 32;
  pair *= 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio
  return static_cast<size_t>(pair >> 20);
}

}  // namespace

const BpeMerges::Rule* BpeMerges::Find(int32_t left, int32_t right) const {
  const uint64_t pair = Pair(left, right);
  const size_t hash = Hash(pair);
  if (!IsMarked(hash)) return nullptr;
  for (size_t slot = hash & mask_;; slot = (slot + 1) & mask_) {
    const Rule& rule = slots_[slot];
    if (rule.pair == pair) return &rule;
    if (rule.pair == kNoPair) return nullptr;
  }
}

void BpeMerges::Add(int32_t left, int32_t right, int32_t rank, int32_t merged) {
  if ((size_ + 1) * 2 > slots_.size()) Rehash(slots_.size() * 2);
  const uint64_t pair = Pair(left, right);
  size_t slot = Hash(pair) & mask_;
  while (slots_[slot].pair != kNoPair && slots_[slot].pair != pair) slot = (slot + 1) & mask_;
  if (slots_[slot].pair == kNoPair) ++size_;
  Mark(Hash(pair));
  slots_[slot] = {pair, rank, merged};
}

void BpeMerges::Rehash(size_t slots) {
  const std::vector<Rule> old = std::move(slots_);
  slots_.assign(slots, Rule());
  mask_ = slots - 1;
  filter_.assign(slots / 8, 0);
  filter_mask_ = slots * 8 - 1;
  for (const Rule& rule : old) {
    if (rule.pair == kNoPair) continue;
    size_t slot = Hash(rule.pair) & mask_;
    while (slots_[slot].pair != kNoPair) slot = (slot + 1) & mask_;
    slots_[slot] = rule;
    Mark(Hash(rule.pair));
  }
}

void BpeMerges::Apply(std::vector<TokenAt>* symbols) const {
  if (symbols->size() < 2 || empty()) return;
  if (symbols->size() <= kShortWord) {
    ApplyShort(symbols);
  } else {
    ApplyLong(symbols);
  }
}

void BpeMerges::ApplyShort(std::vector<TokenAt>* symbols) const {
  TokenAt* s = symbols->data();
  size_t n = symbols->size();
  // ranks[i], merged[i]: the rule for (s[i], s[i + 1]).
  int32_t ranks[kShortWord];
  int32_t merged[kShortWord];
  const auto look_up = [&](size_t i) {
    const Rule* rule = Find(s[i].id, s[i + 1].id);
    ranks[i] = rule != nullptr ? rule->rank : kNoRank;
    merged[i] = rule != nullptr ? rule->merged : 0;
  };
  for (size_t i = 0; i + 1 < n; ++i) {
    __builtin_prefetch(&slots_[Hash(Pair(s[i].id, s[i + 1].id)) & mask_]);
  }
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNoRank) break;
    s[best].id = merged[best];
    for (size_t i = best + 1; i + 1 < n; ++i) s[i] = s[i + 1];
    for (size_t i = best + 1; i + 2 < n; ++i) {
      ranks[i] = ranks[i + 1];
      merged[i] = merged[i + 1];
    }
    --n;
    if (best > 0) look_up(best - 1);
    if (best + 1 < n) look_up(best);
  }
  symbols->resize(n);
}

void BpeMerges::ApplyLong(std::vector<TokenAt>* symbols) const {
  struct Link {
    int64_t previous;
    int64_t next;  // -1: none
    bool alive;
  };
  struct Candidate {
    int32_t rank;
    int64_t at;
    int32_t left, right, merged;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  std::vector<TokenAt>& s = *symbols;
  const auto n = static_cast<int64_t>(s.size());
  std::vector<Link> links(s.size());
  for (int64_t i = 0; i < n; ++i) links[i] = {i - 1, i + 1 < n ? i + 1 : -1, true};
  std::vector<Candidate> storage;
  storage.reserve(s.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(std::greater<>(),
                                                                               std::move(storage));
  const auto push = [&](int64_t left, int64_t right) {
    const Rule* rule = Find(s[left].id, s[right].id);
    if (rule != nullptr) queue.push({rule->rank, left, s[left].id, s[right].id, rule->merged});
  };
  for (int64_t i = 0; i + 1 < n; ++i) push(i, i + 1);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    // Candidates are not removed when a neighbour changes: stale ones are passed over here.
    Link& left = links[top.at];
    if (!left.alive || left.next < 0) continue;
    const int64_t right = left.next;
    if (s[top.at].id != top.left || s[right].id != top.right) continue;
    s[top.at].id = top.merged;
    links[right].alive = false;
    left.next = links[right].next;
    if (left.next >= 0) links[left.next].previous = top.at;
    if (left.previous >= 0) push(left.previous, top.at);
    if (left.next >= 0) push(top.at, left.next);
  }
  size_t kept = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (links[i].alive) s[kept++] = s[i];
  }
  s.resize(kept);
}

}  // namespace megatrain
