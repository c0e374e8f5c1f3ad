#include "engine/device/cpu/experts/sort_assignments.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "engine/device/cpu/loops/ranges.h"

namespace megatrain {

// A counting sort over parts of the tokens: next[part, expert] is first the part's count of the
// expert, then its first row, then the row that comes next. Parts are in the order of tokens, so
// that an expert's rows are too.
void RunSortAssignments(const SortAssignmentsArgs& args, ThreadPool* pool) {
  const int64_t tokens = RowsInPart(args.tokens, args.chosen);
  const int64_t parts = CeilDiv(args.tokens, tokens);
  std::vector<int32_t> next(static_cast<size_t>(parts * args.experts), 0);
  const auto next_of = [&](int64_t token) { return next.data() + token / tokens * args.experts; };
  ForRanges(pool, args.tokens, tokens, [&](int64_t begin, int64_t end) {
    int32_t* const counts = next_of(begin);
    for (int64_t a = begin * args.chosen; a < end * args.chosen; ++a) {
      assert(args.choice[a] >= 0 && args.choice[a] < args.experts);
      ++counts[args.choice[a]];
    }
  });
  int32_t row = 0;
  for (int64_t e = 0; e < args.experts; ++e) {
    args.offsets[e] = row;
    for (int64_t part = 0; part < parts; ++part) {
      int32_t& of_part = next[static_cast<size_t>(part * args.experts + e)];
      const int32_t count = of_part;
      of_part = row;
      row += count;
    }
  }
  args.offsets[args.experts] = row;
  ForRanges(pool, args.tokens, tokens, [&](int64_t begin, int64_t end) {
    int32_t* const next_row = next_of(begin);
    for (int64_t t = begin; t < end; ++t) {
      int32_t* const rows = args.rows + t * args.chosen;
      for (int64_t j = 0; j < args.chosen; ++j) {
        const int64_t assignment = t * args.chosen + j;
        rows[j] = next_row[args.choice[assignment]]++;
        args.assignments[rows[j]] = static_cast<int32_t>(assignment);
      }
      std::sort(rows, rows + args.chosen);
    }
  });
}

}  // namespace megatrain
