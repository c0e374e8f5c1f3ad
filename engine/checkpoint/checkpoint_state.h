// What a checkpoint holds beside tensors, and whether a job may go on from it.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_STATE_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_STATE_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "engine/base/dtype.h"
#include "engine/model/model_layout.h"

namespace megatrain {

struct CheckpointState {
  int64_t step = 0;  // updates applied
  DType weight_dtype = DType::kBF16;
  // Sequences consumed: the next step's first position in training order.
  int64_t data_position = 0;
  int64_t input_tokens = 0;  // trained on since step 1, padding not counted
  // Names the run: drawn when it begins, the same in all its checkpoints, also after it was
  // resumed. Empty in checkpoints of versions before it.
  std::string run;
  uint64_t seed = 0;
  std::string data_fingerprint;
  std::string model_fingerprint;  // ModelFingerprint of the layout
  // Key path -> value, of every key that a resumed run may not change.
  std::map<std::string, std::string> spec;
  int threads = 0;  // for people: bits do not depend on it
  // Device::Arithmetic(); another one may change bits: resuming warns. Empty in checkpoints of
  // versions before it.
  std::string arithmetic;
  int64_t steps_total = 0;  // as planned when it was written
};

// 32 hex digits over the names and shapes of all tensors and the configuration values that change
// the mathematics without changing a shape (heads, rotary embedding, norm epsilon).
std::string ModelFingerprint(const ModelLayout& layout);

// 32 hex digits that no other run has.
std::string NewRunName();

// The run that `state` belongs to: state.run, or for a checkpoint of a version before it 32 hex
// digits over what a resumed run may not change.
std::string RunName(const CheckpointState& state);

// May a job that would begin as `wanted` go on from `saved`? Step, data position,
// input tokens, run, threads, arithmetic and steps_total are not compared. FailedPrecondition names
// what differs, with both values: the model first, then precision, spec keys in order (all of
// them), seed, and the data.
absl::Status CheckResumable(const CheckpointState& saved, const CheckpointState& wanted);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_STATE_H_
