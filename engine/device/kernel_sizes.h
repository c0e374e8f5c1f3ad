// The limits of a device's kernels, and the memory that they take besides their operands. They are
// known without the device, so that a job can be planned for a device of another machine.
#ifndef MEGATRAIN_ENGINE_DEVICE_KERNEL_SIZES_H_
#define MEGATRAIN_ENGINE_DEVICE_KERNEL_SIZES_H_

#include <cstdint>

#include "engine/base/dtype.h"

namespace megatrain {

struct AttentionShape {
  DType dtype = DType::kF32;
  int64_t tokens = 0;    // the tokens of a micro-batch
  int64_t sequence = 0;  // the greatest number of tokens of a document
  int64_t heads = 0, kv_heads = 0;
  int64_t head_dim = 0, value_dim = 0;  // as in AttentionArgs
  // As in AttentionShaping.
  int64_t window = 0;
  float softcap = 0;
  bool sinks = false;  // there are some
};

struct GatedDeltaShape {
  int64_t tokens = 0;  // the tokens of a micro-batch
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
};

// The largest chunk of the LM head, limited by its tokens and by the bytes of their FP32 logits. A
// chunk has at least 64 tokens even if their logits exceed the second limit.
struct HeadChunkMax {
  int64_t tokens = 0;
  int64_t logits_bytes = 0;
};

class KernelSizes {
 public:
  virtual ~KernelSizes() = default;

  // Returns the largest head size that attention takes.
  virtual int64_t HeadDimMax() const = 0;
  // Returns the largest size of a key that the gated delta net takes.
  virtual int64_t DeltaKeyDimMax() const = 0;
  // Returns the device bytes that AttentionBackward must be given for a shape. They depend on the
  // shape alone. They are linear in tokens, except that a library may take up to 1 GiB.
  virtual int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& shape) const = 0;
  // Returns the device bytes that GatedDeltaBackward must be given for a shape. They depend on the
  // shape alone and are linear in tokens. A value head takes about tokens * value_dim * (1 +
  // key_dim / kDeltaChunk) floats on the cpu and twice as many on a GPU. As many key heads are
  // worked on at once as fit into 256 MiB (cpu) or 512 MiB (GPU), and at least one.
  virtual int64_t GatedDeltaBackwardWorkspaceBytes(const GatedDeltaShape& shape) const = 0;
  // Returns the largest chunk of the LM head that makes sense on this device. Each chunk reads and
  // writes the gradient of the whole head, and a larger one would hardly reduce the time for that.
  virtual HeadChunkMax HeadChunk() const = 0;
  // Returns the device bytes, besides the arena, that a stream of StreamUse::kCompute takes.
  virtual int64_t StreamWorkspaceBytes() const { return 0; }
  // Returns true if ranks on such devices exchange by NCCL.
  virtual bool ExchangeByNccl() const { return false; }
  // Returns the most host bytes that the kernels and their libraries hold themselves (packing
  // buffers, scratch), an estimate for a GPU.
  virtual int64_t ScratchBytesMax() const = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_KERNEL_SIZES_H_
