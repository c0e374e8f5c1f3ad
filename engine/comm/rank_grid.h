// The ranks of a job as a grid, so that what they exchange goes in two levels: within groups of
// ranks that share a machine, and among the ranks with the same place in all groups. Where each
// rank sends directly to each other, all ranks of a machine send to all ranks outside; in two
// levels a machine's network port carries the data once.
//
// A reduction sums first within groups. Every rank then has its group's sums of all the parts of
// its place, which are those of the ranks with that place in all groups; the second level sums
// these. A gather goes the other way: a rank receives the parts of its place from the other groups,
// and passes them on within its group.
//
// Groups have a power of two ranks, or all. SumRanks' tree over all ranks is then a tree over the
// groups of trees over their ranks, so that two levels give the bits of one.
#ifndef MEGATRAIN_ENGINE_COMM_RANK_GRID_H_
#define MEGATRAIN_ENGINE_COMM_RANK_GRID_H_

#include <string>
#include <vector>

#include "absl/types/span.h"

namespace megatrain {

// Returns how many ranks a group has, if machines[r] names the machine of rank r: all ranks if they
// share one, else the largest power of two that leaves no group on two machines. So it is 1 where
// ranks are dealt to machines in turn.
int GroupRanks(absl::Span<const std::string> machines);

// REQUIRES: group_ranks is from GroupRanks, or 1, which makes one level of everything.
struct RankGrid {
  int rank = 0;
  int ranks = 1;
  int group_ranks = 1;

  // A part that this rank sums or passes on, and one of a peer. In a reduction the peer sends its
  // values of `mine` and receives this rank's of `theirs`; in a gather it sends `theirs` and
  // receives `mine`. Parts are numbered as their ranks.
  struct Share {
    int mine = 0;
    int theirs = 0;
  };
  // The values that make the sum of a part, in the order of SumRanks: source `part` is this rank's
  // own, and any other source s is what was received for the share {part, s}.
  struct Sum {
    int part = 0;
    std::vector<int> sources = {};
  };

  bool two_levels() const { return group_ranks > 1 && group_ranks < ranks; }
  // Returns true if the peer is in this rank's group.
  bool IsInside(int peer) const { return peer / group_ranks == rank / group_ranks; }
  // Returns what this rank exchanges with a peer, in the order in which both send; nothing with a
  // peer of another group and place.
  std::vector<Share> SharesWith(int peer) const;
  // Returns the sums of this rank within its group, one for each group's part, and the one among
  // groups.
  std::vector<Sum> SumsInside() const;
  Sum SumOutside() const;

 private:
  int place() const { return rank % group_ranks; }
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_COMM_RANK_GRID_H_
