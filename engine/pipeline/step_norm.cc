// The part of StepRunner that makes the norm of a step's gradient of the sums of squares of its
// blocks, which it adds in an order that does not depend on the ranks.
#include <cmath>
#include <numeric>

#include "engine/pipeline/step_runner.h"

namespace megatrain {

// Adds the blocks of a tile in their order, as one rank does that has them all.
void StepRunner::AddSharedSquares(int slot, absl::Span<const double> values, size_t of_rank) {
  const auto tiles = static_cast<size_t>(p_.dimensions->shape.tiles());
  const size_t blocks = static_cast<size_t>(p_.dimensions->shape.folds) * tiles;
  std::vector<double>& squares = states_[slot].shared_squares;
  squares.assign(tiles, 0);
  for (size_t begin = of_rank - blocks; begin < values.size(); begin += of_rank) {
    for (size_t i = 0; i < blocks; ++i) squares[i * tiles / blocks] += values[begin + i];
  }
}

double StepRunner::SquareOf(int slot, int tile) const {
  const StepState& state = states_[slot];
  if (!state.shared_squares.empty()) return state.shared_squares[static_cast<size_t>(tile)];
  const int folds = p_.dimensions->shape.folds;
  const double* const blocks = p_.host_buffers->norms[slot] + tile * folds;
  return std::accumulate(blocks, blocks + folds, 0.0);
}

void StepRunner::CollectNorm(int slot) {
  double sum = 0;
  for (int tile = 0; tile < p_.dimensions->shape.tiles(); ++tile) {
    if (p_.dimensions->shape.state_elements(tile) == 0) continue;
    sum += SquareOf(slot, tile);
  }
  states_[slot].gradient_norm = std::sqrt(sum);
}

}  // namespace megatrain
