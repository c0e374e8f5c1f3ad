// The limits of a kind of device's kernels, and the memory that the kernels take besides their
// operands. Both are known without the device, so that a job can be planned for a device of another
// machine.
#ifndef MEGATRAIN_ENGINE_DEVICE_KERNEL_SIZES_H_
#define MEGATRAIN_ENGINE_DEVICE_KERNEL_SIZES_H_

#include <cstdint>

#include "engine/base/dtype.h"

namespace megatrain {

// The sizes of a call of attention.
struct AttentionShape {
  DType dtype = DType::kF32;
  int64_t tokens = 0;    // the tokens of a micro-batch
  int64_t sequence = 0;  // the most tokens of a document
  int64_t heads = 0, kv_heads = 0;
  int64_t head_dim = 0, value_dim = 0;  // as in AttentionArgs
  // As in AttentionShaping.
  int64_t window = 0;
  float softcap = 0;
  bool sinks = false;  // true: there are sinks
};

// The sizes of a call of the gated delta rule, as in GatedDeltaArgs.
struct GatedDeltaShape {
  int64_t tokens = 0;  // the tokens of a micro-batch
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0;
};

// The most tokens of a chunk of the LM head, and the most bytes of their FP32 logits. A chunk is
// the tokens whose logits are computed at once. It has at least 64 tokens, or all of a smaller
// micro-batch, even if their logits exceed the second limit.
struct LmHeadChunkMax {
  int64_t tokens = 0;
  int64_t logits_bytes = 0;
};

// Thread safety: all methods may be called from any thread.
class KernelSizes {
 public:
  virtual ~KernelSizes() = default;

  // Returns the largest head_dim and value_dim, in elements, that attention takes.
  virtual int64_t HeadDimMax() const = 0;
  // Returns the largest key_dim, in elements, that the gated delta rule takes.
  virtual int64_t DeltaKeyDimMax() const = 0;
  // Returns the device bytes of the workspace that AttentionBackward must be given for a shape. The
  // result depends on the shape alone. It is linear in tokens or, if a library may take the call
  // and uses more, at most 1 GiB.
  virtual int64_t AttentionBackwardWorkspaceBytes(const AttentionShape& shape) const = 0;
  // Returns the device bytes of the workspace that GatedDeltaBackward must be given for a shape.
  // The result depends on the shape alone. It is at most about 256 MiB (cpu) or 512 MiB (GPU),
  // unless one key head with its value heads takes more: a value head takes about
  // tokens * value_dim * (1 + key_dim / kDeltaChunk) floats on the cpu, and twice as many on a GPU.
  virtual int64_t GatedDeltaBackwardWorkspaceBytes(const GatedDeltaShape& shape) const = 0;
  // Returns the largest useful chunk of the LM head. Each chunk reads and writes the gradient of
  // the whole head. Beyond this size that takes little of the time, so that larger chunks hardly
  // help.
  virtual LmHeadChunkMax LmHeadChunk() const = 0;
  // Returns the device bytes, besides the arena (engine/memory/device_arena.h), that a stream for
  // StreamUse::kCompute (device.h) takes.
  virtual int64_t StreamWorkspaceBytes() const { return 0; }
  // Returns true if ranks on such devices exchange data by NCCL.
  virtual bool ExchangeByNccl() const { return false; }
  // Returns the most host bytes that the kernels and their libraries hold themselves, such as
  // packing buffers. This is an estimate for a GPU.
  virtual int64_t ScratchBytesMax() const = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_KERNEL_SIZES_H_
