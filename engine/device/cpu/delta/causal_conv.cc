#include "engine/device/cpu/delta/causal_conv.h"

#include <algorithm>
#include <cstring>

#include "engine/device/cpu/loops/ranges.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/device/cpu/delta/causal_conv.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again for each target.
#include "engine/device/cpu/loops/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace megatrain {
namespace HWY_NAMESPACE {

// The inputs of a token's convolution: x[i] is that of weight from + i.
template <typename T>
struct Inputs {
  int64_t from = 0;
  const T* x[kCausalConvKernelMax];
  int64_t count = 0;
};

// Finds the inputs of token t, of the channels from `first` on. Those before the document are left
// out, unless there is an initial state.
template <typename T>
HWY_INLINE Inputs<T> InputsOf(const CausalConvArgs& args, int64_t t, int64_t first) {
  const int64_t before = args.kernel - 1, begin = args.documents.bounds[2 * t];
  const int64_t row = args.initial_states != nullptr && args.documents.state_rows != nullptr
                          ? args.documents.state_rows[t]
                          : -1;
  Inputs<T> inputs;
  for (int64_t j = 0; j < args.kernel; ++j) {
    const int64_t token = t - before + j;
    if (token >= begin) {
      inputs.x[inputs.count++] = static_cast<const T*>(args.x) + token * args.x_stride + first;
    } else if (row >= 0) {
      const int64_t state = row * before + before + token - begin;
      inputs.x[inputs.count++] =
          static_cast<const T*>(args.initial_states) + state * args.channels + first;
    } else {
      inputs.from = j + 1;
    }
  }
  return inputs;
}

template <bool kTail, typename T>
HWY_INLINE VF Convolve(const Inputs<T>& inputs, const float* weight, int64_t channels, size_t i,
                       size_t count) {
  VF sum = hn::Zero(DF());
  for (int64_t j = 0; j < inputs.count; ++j) {
    sum = hn::MulAdd(LoadPart<kTail>(weight + (inputs.from + j) * channels + i, count),
                     LoadPart<kTail>(inputs.x[j] + i, count), sum);
  }
  return sum;
}

template <typename T>
void ConvolveBlock(const CausalConvArgs& args, const ConvBlock& block) {
  for (int64_t t = block.begin; t < block.end; ++t) {
    const Inputs<T> inputs = InputsOf<T>(args, t, block.first);
    T* const y = static_cast<T*>(args.y) + t * args.y_stride + block.first;
    ForVectors(block.count, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
      const VF p = Convolve<kTail>(inputs, block.weight + block.first, args.channels, i, count);
      StorePart<kTail>(hn::Mul(p, Sigmoid(p)), y + i, count);
    });
  }
}

// dp [count] = dy * silu'(p) of token t, with silu'(p) = s (1 + p (1 - s)), s = sigmoid(p).
template <typename T>
HWY_INLINE void SlopesOf(const CausalConvBackwardArgs& args, const ConvBlock& block, int64_t t,
                         float* dp) {
  const CausalConvArgs& forward = args.forward;
  const Inputs<T> inputs = InputsOf<T>(forward, t, block.first);
  const T* const dy = static_cast<const T*>(args.dy) + t * args.dy_stride + block.first;
  ForVectors(block.count, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
    const VF one = hn::Set(DF(), 1.0f);
    const VF p = Convolve<kTail>(inputs, block.weight + block.first, forward.channels, i, count);
    const VF s = Sigmoid(p);
    const VF slope = hn::Mul(s, hn::MulAdd(p, hn::Sub(one, s), one));
    StorePart<kTail>(hn::Mul(LoadPart<kTail>(dy + i, count), slope), dp + i, count);
  });
}

// Writes dx and the block's sums of dweight, [kernel, channels]. `slopes` has room for block.count
// floats of each token of the block and of the kernel - 1 tokens behind it.
template <typename T>
void BackwardBlock(const CausalConvBackwardArgs& args, const ConvBlock& block, float* slopes,
                   float* sums) {
  const CausalConvArgs& forward = args.forward;
  const int64_t kernel = forward.kernel;
  const int64_t end = std::min(forward.documents.tokens, block.end + kernel - 1);
  const auto slopes_of = [&](int64_t t) {
    return slopes + static_cast<size_t>(t - block.begin) * block.count;
  };
  for (int64_t t = block.begin; t < end; ++t) SlopesOf<T>(args, block, t, slopes_of(t));
  for (int64_t t = block.begin; t < block.end; ++t) {
    const int64_t document_end = forward.documents.bounds[2 * t + 1];
    T* const dx = static_cast<T*>(args.dx) + t * args.dx_stride + block.first;
    const int64_t readers = std::min(kernel, document_end - t);
    ForVectors(block.count, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
      VF sum = hn::Zero(DF());
      for (int64_t later = 0; later < readers; ++later) {
        const float* const weight =
            block.weight + (kernel - 1 - later) * forward.channels + block.first;
        sum = hn::MulAdd(LoadPart<kTail>(slopes_of(t + later) + i, count),
                         LoadPart<kTail>(weight + i, count), sum);
      }
      StorePart<kTail>(sum, dx + i, count);
    });
  }
  for (int64_t j = 0; j < kernel; ++j) {
    std::fill_n(sums + j * forward.channels + block.first, block.count, 0.0f);
  }
  for (int64_t t = block.begin; t < block.end; ++t) {
    const Inputs<T> inputs = InputsOf<T>(forward, t, block.first);
    for (int64_t j = 0; j < inputs.count; ++j) {
      float* const sum = sums + (inputs.from + j) * forward.channels + block.first;
      ForVectors(block.count, [&]<bool kTail>(size_t i, size_t count) HWY_ATTR {
        StorePart<kTail>(
            hn::MulAdd(LoadPart<kTail>(slopes_of(t) + i, count),
                       LoadPart<kTail>(inputs.x[j] + i, count), LoadPart<kTail>(sum + i, count)),
            sum + i, count);
      });
    }
  }
}

void Convolution(const CausalConvArgs& args, const ConvBlock& block) {
  args.dtype == DType::kF32 ? ConvolveBlock<float>(args, block)
                            : ConvolveBlock<bf16_t>(args, block);
}

void Gradient(const CausalConvBackwardArgs& args, const ConvBlock& block, float* slopes,
              float* sums) {
  args.forward.dtype == DType::kF32 ? BackwardBlock<float>(args, block, slopes, sums)
                                    : BackwardBlock<bf16_t>(args, block, slopes, sums);
}

}  // namespace HWY_NAMESPACE
}  // namespace megatrain
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace megatrain {

HWY_EXPORT(Convolution);
HWY_EXPORT(Gradient);

namespace {

// The channels of a block, so that its weights and its slopes stay in a core's caches.
constexpr int64_t kChannels = 256;

// Writes the weight as FP32 to `to`, [kernel, channels].
void WidenWeight(const CausalConvArgs& args, float* to) {
  for (int64_t j = 0; j < args.kernel; ++j) {
    for (int64_t c = 0; c < args.channels; ++c) {
      const int64_t from = c * args.kernel + j;
      to[j * args.channels + c] = args.dtype == DType::kF32
                                      ? static_cast<const float*>(args.weight)[from]
                                      : Bf16ToFloat(static_cast<const bf16_t*>(args.weight)[from]);
    }
  }
}

// Calls call(ConvBlock, part) for blocks of `rows` tokens, where `part` counts the ranges of
// tokens.
template <typename Call>
void ForBlocks(const CausalConvArgs& args, int64_t rows, const float* weight, ThreadPool* pool,
               const Call& call) {
  const int64_t across = CeilDiv(args.channels, kChannels);
  pool->ParallelFor(CeilDiv(args.documents.tokens, rows) * across, [&](int64_t task) {
    const int64_t part = task / across, first = task % across * kChannels;
    call(ConvBlock{part * rows, std::min(args.documents.tokens, (part + 1) * rows), first,
                   static_cast<size_t>(std::min(kChannels, args.channels - first)), weight},
         part);
  });
}

// Row j of the final state is read before a later row of the initial one, which may be the same
// memory, is written.
void WriteFinalStates(const CausalConvArgs& args, ThreadPool* pool) {
  const size_t bytes = static_cast<size_t>(args.channels * DTypeBytes(args.dtype));
  const int64_t before = args.kernel - 1;
  pool->ParallelFor(args.documents.documents, [&](int64_t d) {
    const int64_t begin = args.documents.starts[d], end = args.documents.starts[d + 1];
    const int64_t row = args.documents.state_rows[begin];
    if (row < 0) return;
    for (int64_t j = 0; j < before; ++j) {
      char* const to =
          static_cast<char*>(args.final_states) + static_cast<size_t>(row * before + j) * bytes;
      const int64_t token = end - before + j;
      if (token >= begin) {
        std::memcpy(
            to, static_cast<const char*>(args.x) + token * args.x_stride * DTypeBytes(args.dtype),
            bytes);
      } else if (args.initial_states != nullptr) {
        const int64_t state = row * before + before + token - begin;
        std::memcpy(
            to, static_cast<const char*>(args.initial_states) + static_cast<size_t>(state) * bytes,
            bytes);
      } else {
        std::memset(to, 0, bytes);
      }
    }
  });
}

}  // namespace

void RunCausalConv(const CausalConvArgs& args, ThreadPool* pool, WorkspacePool* workspaces) {
  const WorkspacePool::Lease workspace = workspaces->Take();
  float* const weight = workspace->Floats(1, args.kernel * args.channels);
  WidenWeight(args, weight);
  ForBlocks(args, RowsInBlock(kChannels), weight, pool, [&](const ConvBlock& block, int64_t) {
    HWY_DYNAMIC_DISPATCH(Convolution)(args, block);
  });
  if (args.final_states != nullptr && args.documents.state_rows != nullptr) {
    WriteFinalStates(args, pool);
  }
}

void RunCausalConvBackward(const CausalConvBackwardArgs& args, ThreadPool* pool,
                           WorkspacePool* workspaces) {
  CausalConvBackwardArgs without_states = args;
  without_states.forward.initial_states = nullptr;
  const CausalConvArgs& forward = without_states.forward;
  const int64_t rows = RowsInPart(forward.documents.tokens, kChannels);
  const int64_t parts = CeilDiv(forward.documents.tokens, rows);
  const int64_t width = forward.kernel * forward.channels;
  const WorkspacePool::Lease workspace = workspaces->Take();
  float* const weight = workspace->Floats(1, width);
  float* const sums = workspace->Floats(2, parts * width);
  WidenWeight(forward, weight);
  ForBlocks(forward, rows, weight, pool, [&](const ConvBlock& block, int64_t part) {
    const WorkspacePool::Lease own = workspaces->Take();
    HWY_DYNAMIC_DISPATCH(Gradient)
    (without_states, block, own->Floats(1, (rows + kCausalConvKernelMax) * kChannels),
     sums + part * width);
  });
  if (args.dweight == nullptr) return;
  ForRanges(pool, forward.channels, kChannels, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      for (int64_t j = 0; j < forward.kernel; ++j) {
        float& to = args.dweight[c * forward.kernel + j];
        float sum = args.add_dweight ? to : 0.0f;
        for (int64_t part = 0; part < parts; ++part) {
          sum += sums[part * width + j * forward.channels + c];
        }
        to = sum;
      }
    }
  });
}

}  // namespace megatrain
#endif  // HWY_ONCE
