#include "engine/comm/rank_grid.h"

#include <algorithm>
#include <cstddef>

namespace megatrain {

int GroupRanks(absl::Span<const std::string> machines) {
  const auto fits = [&](size_t size) {
    if (machines.size() % size != 0) return false;
    for (size_t r = 0; r < machines.size(); ++r) {
      if (machines[r] != machines[r / size * size]) return false;
    }
    return true;
  };
  if (fits(std::max<size_t>(1, machines.size()))) return static_cast<int>(machines.size());
  size_t size = 1;
  while (fits(2 * size)) size *= 2;
  return static_cast<int>(size);
}

std::vector<RankGrid::Share> RankGrid::SharesWith(int peer) const {
  if (peer == rank) return {};
  std::vector<Share> shares;
  const int their_place = peer % group_ranks;
  if (IsInside(peer)) {
    for (int first = 0; first < ranks; first += group_ranks) {
      shares.push_back({first + place(), first + their_place});
    }
  } else if (their_place == place()) {
    shares.push_back({rank, peer});
  }
  return shares;
}

std::vector<RankGrid::Sum> RankGrid::SumsInside() const {
  std::vector<Sum> sums;
  for (int first = 0; first < ranks; first += group_ranks) {
    Sum sum{.part = first + place()};
    for (int other = 0; other < group_ranks; ++other) sum.sources.push_back(first + other);
    sums.push_back(sum);
  }
  return sums;
}

RankGrid::Sum RankGrid::SumOutside() const {
  Sum sum{.part = rank};
  for (int source = place(); source < ranks; source += group_ranks) sum.sources.push_back(source);
  return sum;
}

}  // namespace megatrain
