// Choices of experts for the tests of kernels for mixtures of experts.
#ifndef MEGATRAIN_TESTS_ENGINE_DEVICE_EXPERT_CASES_H_
#define MEGATRAIN_TESTS_ENGINE_DEVICE_EXPERT_CASES_H_

#include <cstdint>
#include <vector>

#include "engine/device/expert_args.h"
#include "tests/engine/device/kernels_under_test.h"

namespace megatrain {

// Where tokens go, and the same sorted as SortAssignmentsArgs says (by the reference).
struct SortedChoice {
  int64_t tokens, experts, chosen;
  std::vector<int32_t> choice = {}, offsets = {}, assignments = {}, rows = {};

  int64_t row_count() const { return tokens * chosen; }
};

// Random choices of different experts for each token. `used` experts, at least `chosen`, have all
// the tokens.
SortedChoice ChooseExperts(std::mt19937_64& random, int64_t tokens, int64_t experts, int64_t chosen,
                           int64_t used);

// SortedChoice as operands of a call.
struct ChoiceOperands {
  ChoiceOperands(Operands* operands, const SortedChoice& sorted);
  // Rows [first, first + rows).
  ExpertRows Range(const std::vector<void*>& p, int64_t first, int64_t rows) const;

  int64_t tokens, chosen;
  size_t choice, assignments, rows;
};

// The rows' bounds [0, ..., rows]: everything at once; an expert at a time; ranges that begin and
// end inside experts, an empty one and one of a single row among them.
std::vector<std::vector<int64_t>> CutsOfRows(const SortedChoice& sorted);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DEVICE_EXPERT_CASES_H_
