// SourceMix mixes sources of sequences by weight. Its rule tells the source at any position without
// going through the earlier ones.
#ifndef MEGATRAIN_ENGINE_DATA_ORDER_SOURCE_MIX_H_
#define MEGATRAIN_ENGINE_DATA_ORDER_SOURCE_MIX_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace megatrain {

// The longest period of a mix, for up to 128 sources. With N > 128 sources it is 2^27 / N, to bound
// the work. Many tiny weights exceed it (SourceMix).
inline constexpr int64_t kMixPeriodMax = int64_t{1} << 20;
// The most sources of a mix.
inline constexpr size_t kMixSourcesMax = 1024;

// An endless order of sources that has a period. Position p takes sequence At(p).number, from 0, of
// source At(p).source. A source with share w of the weights has more than n * w - 1 and less than
// n * w + 1 of the first n positions, for every n. The order within the period is that of
// R. Tijdeman, "The chairman assignment problem", Discrete Mathematics 32 (1980).
//
// Weights become whole numbers of positions in a period. They are exact if, multiplied by a power
// of ten from 1 to 10^6, they are whole, none is above 10^15, and after division by their common
// factor their sum is at most the longest period. Others are rounded to parts of the longest
// period, at least one each, and the bounds above hold for the rounded weights. If many weights are
// tiny, that makes the period longer still, by less than a position for each source.
//
// Thread safety: const methods may be called from several threads.
class SourceMix {
 public:
  // Takes up to a second, and 8 bytes for each position of the period. REQUIRES: from 1 to
  // kMixSourcesMax weights, all finite and above 0, with a finite sum.
  explicit SourceMix(absl::Span<const double> weights);

  struct Place {
    size_t source = 0;   // its place in `weights`
    int64_t number = 0;  // how many earlier positions have the same source
  };
  // Returns the source at `position` and the number of its sequence. Takes constant time. REQUIRES:
  // position >= 0.
  Place At(int64_t position) const;
  // Returns the position of a source's sequence `number`: the inverse of At. Takes time in
  // proportion to the period. REQUIRES: `source` is one of the weights, and number >= 0.
  int64_t PositionOf(size_t source, int64_t number) const;

  int64_t period() const { return static_cast<int64_t>(places_.size()); }
  // Returns for each source the number of its positions in a period. Valid as long as this.
  const std::vector<int64_t>& shares() const { return shares_; }

 private:
  struct ShortPlace {
    uint32_t source = 0;
    uint32_t number = 0;  // within the period
  };
  std::vector<int64_t> shares_;
  std::vector<ShortPlace> places_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_ORDER_SOURCE_MIX_H_
