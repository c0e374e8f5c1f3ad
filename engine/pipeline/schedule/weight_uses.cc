#include "engine/pipeline/schedule/weight_uses.h"

#include <algorithm>
#include <limits>

namespace megatrain {

WeightUses::WeightUses(int buffers, std::vector<int>* buffer_tile) : buffer_tile_(*buffer_tile) {
  buffer_tile_.resize(buffers, -1);
}

void WeightUses::Append(int tile) {
  if (static_cast<size_t>(tile) >= of_tile_.size()) of_tile_.resize(static_cast<size_t>(tile) + 1);
  of_tile_[static_cast<size_t>(tile)].at.push_back(static_cast<int>(uses_.size()));
  uses_.push_back(tile);
}

WeightUses::Place WeightUses::Take(int ahead) {
  const int tile = uses_[present_ + ahead];
  const int buffers = static_cast<int>(buffer_tile_.size());
  for (int b = 0; b < buffers; ++b) {
    if (buffer_tile_[b] == tile) return {tile, b, false};
  }
  // The victim is the tile whose next use is farthest (Belady). One needed before this use is never
  // taken: there are fewer of them than buffers.
  int victim = 0;
  int farthest = 0;
  for (int b = 0; b < buffers; ++b) {
    const int next = NextUse(buffer_tile_[b]);
    if (next >= farthest) {
      farthest = next;
      victim = b;
    }
  }
  buffer_tile_[victim] = tile;
  return {tile, victim, true};
}

void WeightUses::Forget(int tile) {
  std::replace(buffer_tile_.begin(), buffer_tile_.end(), tile, -1);
}

int WeightUses::NextUse(int tile) {
  if (tile < 0) return std::numeric_limits<int>::max();
  constexpr int kNever = std::numeric_limits<int>::max() - 1;
  if (static_cast<size_t>(tile) >= of_tile_.size()) return kNever;
  TileUses& of = of_tile_[static_cast<size_t>(tile)];
  while (of.done < of.at.size() && of.at[of.done] < present_) ++of.done;
  return of.done < of.at.size() ? of.at[of.done] : kNever;
}

}  // namespace megatrain
