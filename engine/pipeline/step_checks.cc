// The part of StepRunner that finds a loss, norm or update that is not finite.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/pipeline/step_runner.h"

namespace megatrain {

absl::Status StepRunner::Do(const CheckLossesOp&, const Op& op, Stream*) {
  return CheckBeforeChanges(op.step_slot);
}

absl::Status StepRunner::CheckLosses(int slot) {
  CollectLoss(slot);
  const StepState& state = states_[slot];
  if (std::isfinite(state.loss_sum)) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("step ", state.step, ": the loss is not finite (", state.loss_sum,
                   "), found in the head; nothing of this step was saved. Lower the learning rate, "
                   "lengthen the warm-up, or look at the step's data with `megatraind inspect`"));
}

absl::Status StepRunner::CheckNorm(int slot, int tile) const {
  const double square = SquareOf(slot, tile);
  if (std::isfinite(square)) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("step ", states_[slot].step, ": the gradient norm of tile ", tile, " (",
                   TileName(p_.dimensions->layout->tiles[tile]),
                   ") is not finite; nothing of this step was saved. Lower the learning rate or "
                   "lengthen the warm-up"));
}

// Checks the step's losses and, with clipping, its norms. Without clipping the device may have
// begun its updates by then.
absl::Status StepRunner::CheckBeforeChanges(int slot) {
  const PipelineShape& shape = p_.dimensions->shape;
  absl::Status status = CheckLosses(slot);
  for (int tile = 0; shape.clipping && tile < shape.tiles(); ++tile) {
    if (shape.state_elements(tile) > 0) status.Update(CheckNorm(slot, tile));
  }
  if (!status.ok() && (shape.clipping || !shape.updates_on_device())) {
    failed_unchanged_step_ = states_[slot].step;
  }
  return status;
}

absl::Status StepRunner::Do(const CheckUpdatesOp&, const Op& op, Stream*) {
  MT_RETURN_IF_ERROR(exchange_status());
  const PipelineShape& shape = p_.dimensions->shape;
  for (int tile = 0; tile < shape.tiles(); ++tile) {
    if (!shape.updates_on_device(tile)) continue;
    MT_RETURN_IF_ERROR(CheckNorm(op.step_slot, tile));
    if (p_.host_buffers->update_flags[op.step_slot][tile] != 0) {
      return NotTrusted(op.step_slot, tile);
    }
  }
  return absl::OkStatus();
}

absl::Status StepRunner::NotTrusted(int slot, int tile) const {
  return absl::AbortedError(
      absl::StrCat("step ", states_[slot].step, ": the update of tile ", tile, " (",
                   TileName(p_.dimensions->layout->tiles[tile]),
                   ") made a weight or moment that is not finite; nothing of this step was saved. "
                   "Lower the learning rate"));
}

}  // namespace megatrain
