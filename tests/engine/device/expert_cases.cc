#include "tests/engine/device/expert_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine/device/reference_kernels.h"

namespace megatrain {

SortedChoice ChooseExperts(std::mt19937_64& random, int64_t tokens, int64_t experts, int64_t chosen,
                           int64_t used) {
  SortedChoice sorted{.tokens = tokens, .experts = experts, .chosen = chosen};
  std::vector<int32_t> some(static_cast<size_t>(experts));
  std::iota(some.begin(), some.end(), 0);
  std::shuffle(some.begin(), some.end(), random);
  some.resize(static_cast<size_t>(used));
  for (int64_t t = 0; t < tokens; ++t) {
    std::shuffle(some.begin(), some.end(), random);
    sorted.choice.insert(sorted.choice.end(), some.begin(), some.begin() + chosen);
  }
  sorted.offsets.resize(static_cast<size_t>(experts + 1));
  sorted.assignments.resize(sorted.choice.size());
  sorted.rows.resize(sorted.choice.size());
  ReferenceKernels reference;
  NoStream stream;
  const absl::Status status =
      reference.SortAssignments(stream, {.tokens = tokens,
                                         .experts = experts,
                                         .chosen = chosen,
                                         .choice = sorted.choice.data(),
                                         .offsets = sorted.offsets.data(),
                                         .assignments = sorted.assignments.data(),
                                         .rows = sorted.rows.data()});
  EXPECT_TRUE(status.ok()) << status;
  return sorted;
}

ChoiceOperands::ChoiceOperands(Operands* operands, const SortedChoice& sorted)
    : tokens(sorted.tokens),
      chosen(sorted.chosen),
      choice(operands->Ints(sorted.choice)),
      assignments(operands->Ints(sorted.assignments)),
      rows(operands->Ints(sorted.rows)) {}

ExpertRows ChoiceOperands::Range(const std::vector<void*>& p, int64_t first, int64_t count) const {
  return {.first = first,
          .rows = count,
          .tokens = tokens,
          .chosen = chosen,
          .assignments = static_cast<const int32_t*>(p[assignments]),
          .token_rows = static_cast<const int32_t*>(p[rows])};
}

std::vector<std::vector<int64_t>> CutsOfRows(const SortedChoice& sorted) {
  const int64_t rows = sorted.row_count();
  std::vector<int64_t> odd = {0, 0, rows / 7, rows / 7 + 1, rows / 3, rows - 1, rows, rows};
  std::sort(odd.begin(), odd.end());
  return {{0, rows}, {sorted.offsets.begin(), sorted.offsets.end()}, odd};
}

}  // namespace megatrain
