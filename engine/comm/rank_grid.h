// RankGrid arranges the ranks of a job as a grid of equal groups, so that ranks on several machines
// exchange data in two levels. A group is of consecutive ranks that share a machine, and a rank's
// place is its number within its group. The first level is within a group. The second is among the
// ranks that have the same place in all groups: of four ranks in groups of two, 0 with 2 and 1 with
// 3. A machine's network port then carries the data once. If every rank sent to every other
// directly, the port would carry it once for each rank of the machine.
//
// The data of an operation has a part for each rank. A reduction sums first within groups: each
// rank sums, over its group, the parts of all ranks that have its own place (rank 1 the parts 1 and
// 3). The second level adds these sums of all groups, and each rank gets its own part. A gather
// goes the other way. A rank first receives the parts of the ranks with its place in the other
// groups. It then passes them on within its group.
//
// The size of a group is a power of two, or there is only one group. SumRanks' tree over all ranks
// is then a tree over the groups, in which each group is a tree over its ranks. Two levels
// therefore give the same bits as one.
#ifndef MEGATRAIN_ENGINE_COMM_RANK_GRID_H_
#define MEGATRAIN_ENGINE_COMM_RANK_GRID_H_

#include <string>
#include <vector>

#include "absl/types/span.h"

namespace megatrain {

// Returns the number of ranks of a group: all ranks if they share one machine, else the largest
// power of two that divides their number and leaves no group on two machines. machines[r] names the
// machine of rank r. The result is 1 if no two consecutive ranks share a machine. REQUIRES:
// `machines` is not empty.
int GroupRanks(absl::Span<const std::string> machines);

// The grid as `rank` sees it. REQUIRES: group_ranks is a result of GroupRanks, or 1, with which
// there is one level.
struct RankGrid {
  int rank = 0;
  int ranks = 1;
  int group_ranks = 1;

  // A pair of parts that this rank and a peer exchange. A part has the number of its rank. In a
  // reduction the peer sends its values of the part `mine`, which this rank sums, and receives this
  // rank's values of the part `theirs`. In a gather the peer sends the part `theirs` and receives
  // the part `mine`.
  struct Share {
    int mine = 0;
    int theirs = 0;
  };
  // The values that make the sum of a part, in the order of SumRanks. The source with the number
  // `part` is this rank's own values. Any other source s is the values that were received for the
  // share {part, s}.
  struct Sum {
    int part = 0;
    std::vector<int> sources = {};
  };

  bool two_levels() const { return group_ranks > 1 && group_ranks < ranks; }
  // Returns true if the peer is in this rank's group.
  bool IsInside(int peer) const { return peer / group_ranks == rank / group_ranks; }
  // Returns the pairs that this rank exchanges with a peer, in the order in which both send.
  // Returns none for this rank itself and for a peer of another group and another place. Of four
  // ranks in groups of two, rank 1 has {1, 0} and {3, 2} with rank 0, {1, 3} with rank 3, and none
  // with rank 2.
  std::vector<Share> SharesWith(int peer) const;
  // Return the sums that this rank makes in a reduction. SumsInside are those over its group, one
  // for each part of its place. SumOutside is the one over all groups, of its own part.
  std::vector<Sum> SumsInside() const;
  Sum SumOutside() const;

 private:
  int place() const { return rank % group_ranks; }
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_COMM_RANK_GRID_H_
