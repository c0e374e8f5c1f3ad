#include "engine/device/cpu/attention_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/device/cpu/attention.h"
#include "engine/device/cpu/elementwise.h"
#include "engine/device/cpu/product/product.h"

namespace megatrain::attention {

absl::Status CheckAttention(const AttentionArgs& args) {
  if (args.kv_heads < 1 || args.heads % args.kv_heads != 0 || args.head_dim < 1 ||
      args.head_dim > kCpuHeadDimMax || args.value_dim < 1 || args.value_dim > kCpuHeadDimMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "attention with ", args.heads, " heads, ", args.kv_heads, " key-value heads, head_dim ",
        args.head_dim, ", values of ", args.value_dim, ": not supported"));
  }
  const AttentionShaping& shaping = args.shaping;
  if (shaping.window < 0 || !(shaping.softcap >= 0) || std::isinf(shaping.softcap)) {
    return absl::InvalidArgumentError(absl::StrCat("attention with a window of ", shaping.window,
                                                   " tokens and a softcap of ", shaping.softcap,
                                                   ": both must be 0 (none) or positive"));
  }
  if (args.documents < 1 || args.document_starts[0] != 0 ||
      args.document_starts[args.documents] != args.tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("the documents do not cover the ", args.tokens, " tokens"));
  }
  return absl::OkStatus();
}

SightBounds::SightBounds(const AttentionArgs& args)
    : start(static_cast<size_t>(args.tokens)), end(static_cast<size_t>(args.tokens)) {
  const int64_t window = args.shaping.window > 0 ? args.shaping.window : args.tokens;
  for (int64_t d = 0; d < args.documents; ++d) {
    const int64_t from = args.document_starts[d], to = args.document_starts[d + 1];
    for (int64_t t = from; t < to; ++t) {
      start[static_cast<size_t>(t)] = static_cast<int32_t>(std::max(from, t + 1 - window));
      // Not t + window, which may exceed the type.
      end[static_cast<size_t>(t)] = static_cast<int32_t>(t + std::min(to - t, window));
    }
  }
}

BlockMath::BlockMath(const AttentionArgs& args, bool native_bf16)
    : storage(args.dtype),
      compute(args.dtype == DType::kBF16 && native_bf16 ? DType::kBF16 : DType::kF32) {}

HeadRows BlockMath::Operand(const void* base, int64_t stride, int64_t dim, int64_t head,
                            int64_t row, int64_t rows, int slot, Workspace& workspace) const {
  const char* data =
      static_cast<const char*>(base) + (row * stride + head * dim) * DTypeBytes(storage);
  if (storage == compute) return {data, stride, dim};
  float* wide = workspace.Floats(slot, rows * dim);
  WidenBlock(reinterpret_cast<const bf16_t*>(data), stride, rows, dim, wide, dim);
  return {wide, dim, dim};
}

absl::Status BlockMath::Scores(int64_t m, int64_t n, HeadRows a, HeadRows b, float* out,
                               Workspace& workspace) const {
  const ProductShape shape{.m = m,
                           .n = n,
                           .k = a.dim,
                           .dtype = compute,
                           .transpose_b = true,
                           .a_stride = a.stride,
                           .b_stride = b.stride,
                           .out_stride = kChunk};
  return workspace.Multiply(shape, a.data, b.data, out);
}

absl::Status BlockMath::AddProduct(int64_t m, int64_t k, const void* p, bool transposed, HeadRows b,
                                   float* out, Workspace& workspace) const {
  const ProductShape shape{.m = m,
                           .n = b.dim,
                           .k = k,
                           .dtype = compute,
                           .transpose_a = transposed,
                           .accumulate = true,
                           .a_stride = p_stride(),
                           .b_stride = b.stride,
                           .out_stride = b.dim};
  return workspace.Multiply(shape, p, b.data, out);
}

void BlockMath::StoreRows(const float* x, int64_t rows, void* base, int64_t stride, int64_t dim,
                          int64_t head, int64_t row) const {
  char* out = static_cast<char*>(base) + (row * stride + head * dim) * DTypeBytes(storage);
  if (storage == DType::kBF16) {
    NarrowBlock(x, dim, rows, dim, reinterpret_cast<bf16_t*>(out), stride);
    return;
  }
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(out + i * stride * 4, x + i * dim, static_cast<size_t>(dim) * 4);
  }
}

}  // namespace megatrain::attention
