// The kernel calls that the parts with attention share, each of which projects to queries, keys and
// values in its own way. Functions that return a status queue work on the stream of `l` and return
// the errors of its kernels.
#ifndef MEGATRAIN_ENGINE_MODEL_LAYER_ATTENTION_CALLS_H_
#define MEGATRAIN_ENGINE_MODEL_LAYER_ATTENTION_CALLS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/device/kernel_sizes.h"
#include "engine/model/layer/bound_layer.h"

namespace megatrain {

// Rotates `heads` heads of head_dim elements in the chunk's rows, the first at `x`, unless `rope`
// (an index in ModelDescription::ropes) is -1.
absl::Status RotateHeads(const BoundLayer& l, const Chunk& chunk, void* x, int64_t stride,
                         int64_t heads, int rope, bool inverse);

// Returns the arguments of attention over the micro-batch, except for the addresses of operands.
AttentionArgs AttentionCall(const BoundLayer& l);
// Queues attention. With a cache it stores the layer's own keys and values, and attends to them and
// to those before.
absl::Status Attend(const BoundLayer& l, const AttentionArgs& args);

// Returns the bytes of the workspace of attention's gradient (AttentionPart::WorkspaceBytes).
int64_t AttentionCallWorkspaceBytes(const LayerDescription& layer, DType dtype, int64_t tokens,
                                    int64_t sequence, const KernelSizes& sizes);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MODEL_LAYER_ATTENTION_CALLS_H_
