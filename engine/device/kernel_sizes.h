// The memory that a device's kernels take beside their operands: what a plan asks of a device, also
// of one that is not there.
#ifndef MEGATRAIN_ENGINE_DEVICE_KERNEL_SIZES_H_
#define MEGATRAIN_ENGINE_DEVICE_KERNEL_SIZES_H_

#include <cstdint>

#include "engine/base/dtype.h"

namespace megatrain {

struct AttentionShape {
  DType dtype = DType::kF32;
  int64_t tokens = 0;    // of a micro-batch
  int64_t sequence = 0;  // tokens of the longest document, at most
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
};

// The most that a chunk of the LM head may have: tokens, and bytes of their FP32 logits (64 tokens
// at least, whatever they take).
struct HeadChunkMax {
  int64_t tokens = 0;
  int64_t logits_bytes = 0;
};

class KernelSizes {
 public:
  virtual ~KernelSizes() = default;

  // Device bytes that AttentionBackward is to be given for these shapes; depends on nothing else.
  // Linear in tokens but for what a library may take, which is 1 GiB at most.
  virtual int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& shape) const = 0;
  // Each chunk reads and writes the gradient of the whole head: long enough that this is not what
  // the chunk takes, and no longer.
  virtual HeadChunkMax HeadChunk() const = 0;
  // Device bytes beside the arena that a stream of kernels (StreamUse::kCompute) takes.
  virtual int64_t StreamWorkspaceBytes() const { return 0; }
  // Host bytes beside the arena that the kernels themselves hold (packing buffers, scratch), at
  // most, for products of up to max_elements_of_an_operand elements.
  virtual int64_t ScratchBytesMax(DType dtype, int64_t max_operand_elements) const = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_KERNEL_SIZES_H_
