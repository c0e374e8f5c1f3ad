#include "engine/data/order/source_mix.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace megatrain {
namespace {

// The most steps of making a table: a second's work.
constexpr int64_t kWorkMax = int64_t{1} << 27;

int64_t Sum(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

// The weights as whole numbers without a common factor. Empty if they are none that are small
// enough, with up to six decimal places.
std::vector<int64_t> ExactShares(absl::Span<const double> weights, int64_t period_max) {
  for (double scale = 1; scale <= 1e6; scale *= 10) {
    std::vector<int64_t> shares;
    int64_t factor = 0;
    for (const double weight : weights) {
      const double scaled = weight * scale;
      const double whole = std::round(scaled);
      // A decimal fraction is not exact in binary; its error is far below this.
      if (whole < 1 || whole > 1e15 || std::abs(scaled - whole) > 1e-9 * whole) break;
      shares.push_back(static_cast<int64_t>(whole));
      factor = std::gcd(factor, shares.back());
    }
    if (shares.size() != weights.size()) continue;
    for (int64_t& share : shares) share /= factor;
    if (*std::max_element(shares.begin(), shares.end()) <= period_max &&
        Sum(shares) <= period_max) {
      return shares;
    }
  }
  return {};
}

// The weights in parts of a period of `period_max`, at least one each, by largest remainders.
std::vector<int64_t> RoundedShares(absl::Span<const double> weights, int64_t period_max) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> shares;
  std::vector<std::pair<double, size_t>> remainders;  // the largest first
  for (size_t i = 0; i < weights.size(); ++i) {
    const double exact = weights[i] / sum * static_cast<double>(period_max);
    shares.push_back(std::max<int64_t>(1, static_cast<int64_t>(exact)));
    remainders.emplace_back(static_cast<double>(shares.back()) - exact, i);
  }
  std::sort(remainders.begin(), remainders.end());
  int64_t left = period_max - Sum(shares);  // below 0 only if many weights are tiny
  for (size_t i = 0; left > 0; ++i, --left) ++shares[remainders[i % remainders.size()].second];
  return shares;
}

}  // namespace

SourceMix::SourceMix(absl::Span<const double> weights) {
  const int64_t count = static_cast<int64_t>(weights.size());
  const int64_t period_max = std::min(kMixPeriodMax, kWorkMax / count);
  shares_ = ExactShares(weights, period_max);
  if (shares_.empty()) shares_ = RoundedShares(weights, period_max);

  // In units of 1 / period: a source's deficit at step n is n * share - period * taken. The source
  // must be one with a deficit of at least period / (2 count - 2), and of those the one that would
  // first be too late, at a deficit of period * (1 - 1 / (2 count - 2)).
  const int64_t period = Sum(shares_);
  const int64_t parts = std::max<int64_t>(1, 2 * count - 2);
  places_.reserve(static_cast<size_t>(period));
  std::vector<int64_t> taken(weights.size(), 0);
  for (int64_t n = 1; n <= period; ++n) {
    size_t best = 0;
    int64_t best_slack = -1;
    for (size_t i = 0; i < shares_.size(); ++i) {
      const int64_t deficit = n * shares_[i] - period * taken[i];
      if (deficit * parts < period && count > 1) continue;
      // The steps that are left are slack / share.
      const int64_t slack = std::max<int64_t>(0, period * (parts - 1) - deficit * parts);
      if (best_slack >= 0 && static_cast<__int128>(slack) * shares_[best] >=
                                 static_cast<__int128>(best_slack) * shares_[i]) {
        continue;
      }
      best = i;
      best_slack = slack;
    }
    places_.push_back({static_cast<uint32_t>(best), static_cast<uint32_t>(taken[best]++)});
  }
}

SourceMix::Place SourceMix::At(int64_t position) const {
  const ShortPlace& place = places_[static_cast<size_t>(position % period())];
  return {place.source, position / period() * shares_[place.source] + place.number};
}

int64_t SourceMix::PositionOf(size_t source, int64_t number) const {
  const int64_t inside = number % shares_[source];
  int64_t at = 0;
  while (places_[static_cast<size_t>(at)].source != source ||
         places_[static_cast<size_t>(at)].number != static_cast<uint32_t>(inside)) {
    ++at;
  }
  return number / shares_[source] * period() + at;
}

}  // namespace megatrain
