// Assigns the tiles of a step to weight buffers. A use is one stretch of the step in which a tile's
// weights must be on the device. A new tile replaces the one whose next use is farthest away
// (Belady 1966).
#ifndef MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_WEIGHT_USES_H_
#define MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_WEIGHT_USES_H_

#include <cstddef>
#include <vector>

namespace megatrain {

class WeightUses {
 public:
  struct Place {
    int tile = -1;
    int buffer = -1;
    bool load = false;  // the tile must be loaded into the buffer first
  };

  // `buffer_tile` has the tile in each buffer, -1 for none, as the step before left it. It is
  // resized to `buffers`, kept up to date, and must outlive this.
  WeightUses(int buffers, std::vector<int>* buffer_tile);

  // Appends a use of a tile. Uses are appended in their order, and all before the first Take,
  // because the choice of buffers looks ahead.
  void Append(int tile);
  // Returns the number of uses from the present one on.
  int left() const { return static_cast<int>(uses_.size()) - present_; }

  // Returns a buffer for the tile of the use that is `ahead` uses after the present one. REQUIRES:
  // 0 <= ahead < min(buffers, left()), and Take was called for the uses before it, but perhaps not
  // yet for the present one, whose buffer no other use is given.
  Place Take(int ahead);
  // Ends the present use.
  void End() { ++present_; }
  // Marks buffers that hold `tile` as empty, because it changed on the host. REQUIRES: every use of
  // `tile` that was taken has ended.
  void Forget(int tile);

 private:
  int NextUse(int tile);

  std::vector<int>& buffer_tile_;
  // The uses of a tile, ascending. The first `done` are before the present one.
  struct TileUses {
    std::vector<int> at;
    size_t done = 0;
  };

  std::vector<int> uses_;
  std::vector<TileUses> of_tile_;
  int present_ = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PIPELINE_SCHEDULE_WEIGHT_USES_H_
