#include "engine/comm/rank_grid.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>

#include "engine/comm/sum_ranks.h"

namespace megatrain {
namespace {

// One letter a rank.
int GroupRanksOf(const std::string& machines) {
  std::vector<std::string> names;
  for (const char machine : machines) names.emplace_back(1, machine);
  return GroupRanks(names);
}

TEST(RankGridTest, GroupsHaveAPowerOfTwoRanksOfAMachineOrAll) {
  EXPECT_EQ(GroupRanksOf("a"), 1);
  EXPECT_EQ(GroupRanksOf("aaaaa"), 5);
  EXPECT_EQ(GroupRanksOf("ab"), 1);
  EXPECT_EQ(GroupRanksOf("aabbccdd"), 2);
  EXPECT_EQ(GroupRanksOf("aaaabbbb"), 4);
  EXPECT_EQ(GroupRanksOf("aabbcc"), 2);
  // Three ranks a machine have no common power of two, six have 2, and uneven machines what fits.
  EXPECT_EQ(GroupRanksOf("aaabbb"), 1);
  EXPECT_EQ(GroupRanksOf("aaaaaabbbbbb"), 2);
  EXPECT_EQ(GroupRanksOf("aaaaaaaabbbb"), 4);
  EXPECT_EQ(GroupRanksOf("aaab"), 1);
  EXPECT_EQ(GroupRanksOf("aab"), 1);
  EXPECT_EQ(GroupRanksOf("abab"), 1) << "dealt in turn";
}

// All sizes of groups for so many ranks.
std::vector<int> GroupsFor(int ranks) {
  std::vector<int> sizes;
  for (int size = 1; size < ranks; size *= 2) {
    if (ranks % size == 0) sizes.push_back(size);
  }
  sizes.push_back(ranks);
  return sizes;
}

using Parts = std::vector<float>;  // a rank's values, one for each part

// One level of a reduction on all ranks.
void Reduce(int group_ranks, bool inside, std::vector<Parts>* ranks) {
  const int count = static_cast<int>(ranks->size());
  std::vector<Parts> sums = *ranks;
  for (int rank = 0; rank < count; ++rank) {
    const RankGrid grid{.rank = rank, .ranks = count, .group_ranks = group_ranks};
    Parts received(ranks->size(), NAN);
    for (int peer = 0; peer < count; ++peer) {
      if (grid.IsInside(peer) != inside) continue;
      for (const RankGrid::Share& share : grid.SharesWith(peer)) {
        received[static_cast<size_t>(share.theirs)] =
            (*ranks)[static_cast<size_t>(peer)][static_cast<size_t>(share.mine)];
      }
    }
    std::vector<RankGrid::Sum> levels = {grid.SumOutside()};
    if (inside) levels = grid.SumsInside();
    for (const RankGrid::Sum& sum : levels) {
      std::vector<const float*> values;
      const size_t part = static_cast<size_t>(sum.part);
      for (const int source : sum.sources) {
        values.push_back(source == sum.part ? &(*ranks)[static_cast<size_t>(rank)][part]
                                            : &received[static_cast<size_t>(source)]);
      }
      SumRanks(values, 1, &sums[static_cast<size_t>(rank)][part]);
    }
  }
  *ranks = sums;
}

TEST(RankGridTest, TwoLevelsGiveTheBitsOfSumRanks) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-20, 20);
  for (int ranks = 1; ranks <= 40; ++ranks) {
    std::vector<Parts> given(static_cast<size_t>(ranks), Parts(static_cast<size_t>(ranks)));
    for (Parts& parts : given) {
      for (float& value : parts) value = std::ldexp(normal(random), exponent(random));
    }
    for (const int group_ranks : GroupsFor(ranks)) {
      std::vector<Parts> reduced = given;
      Reduce(group_ranks, /*inside=*/true, &reduced);
      Reduce(group_ranks, /*inside=*/false, &reduced);
      for (size_t part = 0; part < reduced.size(); ++part) {
        std::vector<const float*> values;
        for (const Parts& parts : given) values.push_back(&parts[part]);
        float expected = 0;
        SumRanks(values, 1, &expected);
        EXPECT_EQ(std::memcmp(&reduced[part][part], &expected, sizeof(float)), 0)
            << ranks << " ranks in groups of " << group_ranks << ", part " << part;
      }
    }
  }
}

TEST(RankGridTest, PeersAgreeOnWhatTheyExchange) {
  for (int ranks = 1; ranks <= 24; ++ranks) {
    for (const int group_ranks : GroupsFor(ranks)) {
      for (int rank = 0; rank < ranks; ++rank) {
        const RankGrid grid{.rank = rank, .ranks = ranks, .group_ranks = group_ranks};
        int outside = 0;
        for (int peer = 0; peer < ranks; ++peer) {
          const std::vector<RankGrid::Share> own = grid.SharesWith(peer);
          const std::vector<RankGrid::Share> theirs =
              RankGrid{.rank = peer, .ranks = ranks, .group_ranks = group_ranks}.SharesWith(rank);
          ASSERT_EQ(own.size(), theirs.size());
          for (size_t i = 0; i < own.size(); ++i) {
            EXPECT_EQ(own[i].mine, theirs[i].theirs);
            EXPECT_EQ(own[i].theirs, theirs[i].mine);
          }
          if (!grid.IsInside(peer)) outside += static_cast<int>(own.size());
        }
        // A part for each other group, whatever the number of its ranks.
        EXPECT_EQ(outside, ranks / group_ranks - 1);
      }
    }
  }
}

}  // namespace
}  // namespace megatrain
