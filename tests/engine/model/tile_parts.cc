#include "tests/engine/model/tile_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace megatrain {

std::vector<int64_t> RandomCuts(int64_t elements, int parts, std::mt19937_64& random) {
  std::vector<int64_t> cuts = {0, elements};
  for (int i = 1; i < parts; ++i) {
    // One in three falls on another cut.
    cuts.push_back(
        random() % 3 == 0
            ? cuts[random() % cuts.size()]
            : static_cast<int64_t>(random() % static_cast<uint64_t>(elements / 128 + 1)) * 128);
  }
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

std::vector<int64_t> EvenCuts(int64_t elements, int parts) {
  std::vector<int64_t> cuts;
  for (int i = 0; i < parts; ++i) cuts.push_back(elements * i / parts / 128 * 128);
  cuts.push_back(elements);
  return cuts;
}

TileParts::TileParts(const TileLayout& layout, DType weight_dtype, const std::vector<int64_t>& cuts,
                     std::vector<int64_t> stateless_cuts)
    : layout_(layout), weight_dtype_(weight_dtype) {
  if (stateless_cuts.empty()) {
    stateless_cuts = EvenCuts(layout.stateless_elements, static_cast<int>(cuts.size()) - 1);
  }
  const int64_t state = layout.elements - layout.stateless_elements;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const HeldElements held = {{cuts[i], cuts[i + 1]},
                               {state + stateless_cuts[i], state + stateless_cuts[i + 1]}};
    auto& block = blocks_.emplace_back(TileBytes(held, weight_dtype) + 1, '\xcd');
    tiles_.push_back(MakeTile(&layout, weight_dtype, block.data(), held));
  }
}

template <typename Copy>
void TileParts::ForEachSection(int i, const Copy& copy) const {
  const auto [held, without] = part(i).held;
  const int64_t size = DTypeBytes(weight_dtype_), n = held.end - held.begin;
  const int64_t n_without = without.end - without.begin;
  const int64_t state = layout_.elements - layout_.stateless_elements;
  copy(0, held.begin * size, n * size);
  copy(n * size, without.begin * size, n_without * size);
  int64_t in_part = (n + n_without) * size, in_whole = layout_.elements * size;
  const std::vector<int64_t> state_bytes =
      size == 2 ? std::vector<int64_t>{2, 4, 4} : std::vector<int64_t>{4, 4};
  for (const int64_t bytes : state_bytes) {
    copy(in_part, in_whole + held.begin * bytes, n * bytes);
    in_part += n * bytes;
    in_whole += state * bytes;
  }
  EXPECT_EQ(in_part + 1, static_cast<int64_t>(blocks_[static_cast<size_t>(i)].size()));
}

void TileParts::Split(const char* whole) {
  for (int i = 0; i < size(); ++i) {
    ForEachSection(i, [&](int64_t in_part, int64_t in_whole, int64_t bytes) {
      std::memcpy(&blocks_[static_cast<size_t>(i)][static_cast<size_t>(in_part)], whole + in_whole,
                  static_cast<size_t>(bytes));
    });
  }
}

std::vector<char> TileParts::Join() const {
  std::vector<char> whole(
      static_cast<size_t>(TileBytes(layout_.elements, weight_dtype_, layout_.stateless_elements)));
  for (int i = 0; i < size(); ++i) {
    const std::vector<char>& block = blocks_[static_cast<size_t>(i)];
    EXPECT_EQ(block.back(), '\xcd') << "written beyond the end of part " << i;
    ForEachSection(i, [&](int64_t in_part, int64_t in_whole, int64_t bytes) {
      std::memcpy(whole.data() + in_whole, block.data() + in_part, static_cast<size_t>(bytes));
    });
  }
  return whole;
}

}  // namespace megatrain
