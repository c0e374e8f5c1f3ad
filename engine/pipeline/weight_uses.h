// Which tile lies in which weight buffer while a step's uses of tiles go by.
#ifndef MEGATRAIN_ENGINE_PIPELINE_WEIGHT_USES_H_
#define MEGATRAIN_ENGINE_PIPELINE_WEIGHT_USES_H_

#include <vector>

namespace megatrain {

class WeightUses {
 public:
  struct Place {
    int tile = -1;
    int buffer = -1;
    bool load = false;  // the tile must be loaded into the buffer first
  };

  // `buffer_tile`: the tile each buffer holds, -1 for none; left behind by the step before, kept up
  // to date here. Must outlive this.
  WeightUses(int buffers, std::vector<int>* buffer_tile);

  // The uses in their order.
  void Append(int tile) { uses_.push_back(tile); }
  // From the present one on.
  int left() const { return static_cast<int>(uses_.size()) - present_; }

  // A buffer for the tile used `ahead` uses after the present one.
  // REQUIRES: 0 <= ahead < min(buffers, left()); the uses between have taken theirs.
  Place Take(int ahead);
  // The present use is over.
  void End() { ++present_; }
  // The tile changed on the host: buffers that hold it hold its past.
  void Forget(int tile);

 private:
  int NextUse(int tile) const;

  std::vector<int>& buffer_tile_;
  std::vector<int> uses_;
  int present_ = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_PIPELINE_WEIGHT_USES_H_
