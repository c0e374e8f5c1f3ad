// The part of a checkpoint that is not tensors.
#ifndef MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_STATE_H_
#define MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_STATE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/model/model_layout.h"

namespace megatrain {

// The evaluations of a run so far.
struct Evaluations {
  int64_t best_step = 0;   // the step of the lowest finite loss, the first of equal ones; 0: none
  double best_loss = 0;    // its loss
  int64_t since_best = 0;  // evaluations after it; all if there is no best
  // The step of the checkpoint that training.keep_best keeps, and its loss: that of best_step, or
  // of another one if best_step could not be saved. 0: none. In the manifest of a job without
  // keep_best it is best_step.
  int64_t kept_step = 0;
  double kept_loss = 0;
  // The last evaluation of this process; 0: none. Not in manifests.
  int64_t last_step = 0;
  double last_loss = 0;

  // Adds an evaluation after `step`. Does not change what is kept.
  void Add(int64_t step, double loss);
};

// A change of a job key that a resumed run may make with --allow-change alone. `before` or `now` is
// "" if the key was or is missing.
struct AllowedChange {
  int64_t step = 0;  // of the checkpoint that the run resumed from
  std::string key, before, now;
};

// The state of a run after a step.
struct CheckpointState {
  int64_t step = 0;  // steps made, counting those that training.skip_steps skips
  DType weight_dtype = DType::kBF16;
  // The number of sequences consumed, which is the position of the next one in training order.
  int64_t data_position = 0;
  int64_t input_tokens = 0;  // tokens trained on since step 1, without padding
  // The run's identity: drawn when the run begins and the same in all its checkpoints, also after
  // it was resumed. Empty in checkpoints of versions that did not have it.
  std::string run;
  uint64_t seed = 0;
  std::string data_fingerprint;   // Dataset::fingerprint
  std::string model_fingerprint;  // ModelFingerprint of the layout
  // The values of the keys that a resumed run may not change, or with --allow-change alone, by key
  // path.
  std::map<std::string, std::string> spec;
  int threads = 0;  // for information: results do not depend on it
  // Device::Arithmetic(). The number of devices follows it if bits depend on that. A run that
  // resumes with another text may get other bits, and logs a warning. Empty in checkpoints of
  // versions that did not have it.
  std::string arithmetic;
  int64_t steps_total = 0;                     // planned when the checkpoint was written
  std::vector<AllowedChange> allowed_changes;  // of the whole run, in their order
  Evaluations evaluations;                     // up to and with that of this step
  // A hash of the weights that the reference of a preference objective has; empty without one.
  std::string reference;
  // CarriedTensors::digest of the tensors beside the text model of a wrapper (a model of images and
  // text). Empty without a wrapper, and in checkpoints of versions that did not have it.
  std::string carried_digest;
};

// Returns a hash, in 32 hex digits, of the names and shapes of all tensors, of their tiles, and of
// the configuration values that change the result without changing a shape (heads, rotary
// embedding, norm epsilon). It does not depend on what is frozen.
std::string ModelFingerprint(const ModelLayout& layout);

// Returns 32 random hex digits for CheckpointState::run.
std::string NewRunName();

// Returns state.run. If that is empty, returns a hash of the fields that a resumed run may not
// change. All checkpoints of such a run have the same hash.
std::string RunName(const CheckpointState& state);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_CHECKPOINT_CHECKPOINT_STATE_H_
