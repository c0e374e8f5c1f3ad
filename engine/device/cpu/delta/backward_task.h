// A task of the gated delta rule's gradient on the cpu: its range and its memory.
// RunGatedDeltaBackward (gated_delta.h) makes the tasks. A task sweeps over the chunks of a
// document twice. The first sweep goes forwards and keeps the states and u, the corrected values
// that the tokens add to the state (formula in GatedDeltaArgs). The second sweep goes backwards,
// reads them and computes the gradients.
#ifndef MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_BACKWARD_TASK_H_
#define MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_BACKWARD_TASK_H_

#include <cstdint>

#include "engine/device/delta_args.h"

namespace megatrain {

// The FP32 memory in which the first sweep keeps values of some value heads for the second one.
// `head` counts these heads from 0. The tasks of several documents share it, each with the rows of
// its own tokens.
struct KeptForBackward {
  // Returns where u is kept, [tokens of the micro-batch, value_stride].
  float* u(int64_t head) const { return memory + head * head_floats; }
  // Returns where the transposed state [value_stride, key_stride] is kept for the start of the
  // chunk that begins at token `first`. REQUIRES: this is not the first chunk of its document. The
  // other chunks begin at least kDeltaChunk tokens apart, so each has a place of its own.
  float* state(int64_t head, int64_t first) const {
    return u(head) + tokens * value_stride + (first / kDeltaChunk - 1) * value_stride * key_stride;
  }

  float* memory = nullptr;
  int64_t tokens = 0;                        // of the micro-batch
  int64_t key_stride = 0, value_stride = 0;  // key_dim and value_dim, padded (products-inl.h)
  int64_t head_floats = 0;                   // the floats of one value head
};

// The gradients by a_log and dt_bias of a value head, summed over a document.
struct GateSums {
  double a_log = 0, dt_bias = 0;
};

// A task: one document, and the value heads of one key head. The pointers must outlive the task's
// run.
struct BackwardTask {
  int64_t begin = 0, end = 0;  // the document's tokens
  int64_t key_head = 0;
  KeptForBackward kept;      // for these value heads
  GateSums* sums = nullptr;  // [value heads of the key head]; added to
  // Scratch of BackwardFloats (gated_delta_backward.cc) floats, as Workspace::Floats gives it.
  // Tasks that run at once must not share it.
  float* buffer = nullptr;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CPU_DELTA_BACKWARD_TASK_H_
