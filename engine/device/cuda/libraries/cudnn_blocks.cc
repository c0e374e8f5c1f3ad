#include "engine/device/cuda/libraries/cudnn_blocks.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/libraries/cudnn_choice.h"
#include "engine/device/cuda/libraries/cudnn_operands.h"

namespace megatrain {
namespace {

constexpr int64_t kPartBytes = 2, kSumBytes = sizeof(float);

// A document's blocks, with the heads of one key and value.
class Blocks {
 public:
  Blocks(void* stream, const AttentionBackwardArgs& args, const DocumentRun& run,
         const RunCudnnGraph& run_graph)
      : stream_(stream),
        args_(args),
        run_(run),
        run_graph_(run_graph),
        keys_(KeysOfRun(args, run)),
        first_token_(StartsOf(args.forward)[run.first]),
        group_(GroupOf(args.forward)),
        memory_(args, run) {}

  int WriteIndices() {
    const int32_t whole[] = {0, static_cast<int32_t>(run_.length)};
    const int32_t last[] = {0, static_cast<int32_t>(run_.tokens % run_.length)};
    const int error = WriteIndex(stream_, keys_[0], whole, memory_.index);
    return error != 0 ? error : WriteIndex(stream_, keys_[0], last, memory_.last_index);
  }

  int Backward(int64_t kv_head) {
    const AttentionArgs& f = args_.forward;
    int error =
        cuda::TransposeStatistics(stream_, f.lse + kv_head * group_ * f.tokens + first_token_,
                                  group_, run_.tokens, f.tokens, memory_.statistics, group_);
    for (int64_t q = 0; q < run_.tokens && error == 0; q += run_.length) {
      for (int64_t k = 0; k <= q && error == 0; k += run_.length) {
        error = RunBlock(kv_head, q, k);
        if (error == 0) error = AddParts(kv_head, q, k);
      }
    }
    return error;
  }

 private:
  int64_t TokensFrom(int64_t token) const { return std::min(run_.length, run_.tokens - token); }
  char* IndexOf(int64_t token) const {
    return TokensFrom(token) == run_.length ? memory_.index : memory_.last_index;
  }

  // Queries from `q` on and keys from `k` on, of the document.
  int RunBlock(int64_t kv_head, int64_t q, int64_t k) {
    CudnnAddresses addresses = AddressesOf(args_, first_token_ + q, kv_head);
    const CudnnAddresses keys = AddressesOf(args_, first_token_ + k, kv_head);
    for (const CudnnOperand operand : {kK, kV}) addresses[operand] = keys.at(operand);
    addresses[kStatistics] = memory_.statistics + q * group_;
    addresses[kDQ] = memory_.dq_part;
    addresses[kDK] = memory_.dk_part;
    addresses[kDV] = memory_.dv_part;
    AddIndex(/*backward=*/true, IndexOf(q), IndexOf(k), &addresses);
    return run_graph_(keys_[q == k ? 0 : 1], std::move(addresses), memory_.rest,
                      memory_.rest_bytes);
  }

  // The block of its own is a block of queries' last one of keys, and a block of keys' first one of
  // queries.
  int AddParts(int64_t kv_head, int64_t q, int64_t k) {
    const int64_t head_dim = args_.forward.head_dim, value_dim = args_.forward.value_dim;
    CudnnAddresses of_queries = AddressesOf(args_, first_token_ + q, kv_head);
    CudnnAddresses of_keys = AddressesOf(args_, first_token_ + k, kv_head);
    cuda::AttentionPart part{.rows = TokensFrom(q),
                             .width = group_ * head_dim,
                             .part = memory_.dq_part,
                             .sum = memory_.dq_sum,
                             .first = k == 0,
                             .last = k == q,
                             .out = of_queries[kDQ],
                             .out_stride = args_.dq_stride};
    if (const int error = cuda::AddAttentionPart(stream_, part); error != 0) return error;
    part.rows = TokensFrom(k);
    part.width = head_dim;
    part.first = k == q;
    part.last = q + run_.length >= run_.tokens;
    part.part = memory_.dk_part;
    part.sum = memory_.dk_sum + k * head_dim;
    part.out = of_keys[kDK];
    part.out_stride = args_.dk_stride;
    if (const int error = cuda::AddAttentionPart(stream_, part); error != 0) return error;
    part.width = value_dim;
    part.part = memory_.dv_part;
    part.sum = memory_.dv_sum + k * value_dim;
    part.out = of_keys[kDV];
    part.out_stride = args_.dv_stride;
    return cuda::AddAttentionPart(stream_, part);
  }

  void* const stream_;
  const AttentionBackwardArgs& args_;
  const DocumentRun& run_;
  const RunCudnnGraph& run_graph_;
  const std::vector<CudnnGraphKey> keys_;  // on the diagonal, and below it
  const int64_t first_token_, group_;
  const CudnnBlockWorkspace memory_;
};

}  // namespace

CudnnBlockWorkspace::CudnnBlockWorkspace(const AttentionBackwardArgs& args,
                                         const DocumentRun& run) {
  const int64_t group = GroupOf(args.forward);
  const int64_t head_dim = args.forward.head_dim, value_dim = args.forward.value_dim;
  char* const begin = static_cast<char*>(args.workspace);
  int64_t taken = 0;
  const auto take = [&](int64_t bytes) {
    return begin + std::exchange(taken, taken + CudnnAligned(bytes));
  };
  const auto take_sums = [&](int64_t elements) {
    return reinterpret_cast<float*>(take(elements * kSumBytes));
  };
  index = take(cuda::kPackedIndexBytes);
  last_index = take(cuda::kPackedIndexBytes);
  statistics = take_sums(run.tokens * group);
  dk_sum = take_sums(run.tokens * head_dim);
  dv_sum = take_sums(run.tokens * value_dim);
  dq_sum = take_sums(run.length * group * head_dim);
  dq_part = take(run.length * group * head_dim * kPartBytes);
  dk_part = take(run.length * head_dim * kPartBytes);
  dv_part = take(run.length * value_dim * kPartBytes);
  rest = begin + taken;
  rest_bytes = args.workspace_bytes - taken;
}

int CudnnBackwardByBlocks(void* stream, const AttentionBackwardArgs& args, const DocumentRun& run,
                          const RunCudnnGraph& run_graph) {
  Blocks blocks(stream, args, run, run_graph);
  int error = blocks.WriteIndices();
  for (int64_t kv_head = 0; kv_head < args.forward.kv_heads && error == 0; ++kv_head) {
    error = blocks.Backward(kv_head);
  }
  return error;
}

}  // namespace megatrain
