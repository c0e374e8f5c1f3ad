#include "engine/device/cuda/libraries/cudnn_operands.h"

#include <initializer_list>

#include "engine/device/cuda/kernels/launchers.h"

namespace megatrain {

CudnnAddresses AddressesOf(const AttentionArgs& args, int64_t token, int64_t kv_head) {
  const int64_t head = kv_head * (args.heads / args.kv_heads);
  const auto at = [&](const void* operand, int64_t stride, int64_t before) -> void* {
    return static_cast<char*>(const_cast<void*>(operand)) + 2 * (token * stride + before);
  };
  return {{kQ, at(args.q, args.q_stride, head * args.head_dim)},
          {kK, at(args.k, args.k_stride, kv_head * args.head_dim)},
          {kV, at(args.v, args.v_stride, kv_head * args.value_dim)},
          {kOut, at(args.out, args.heads * args.value_dim, head * args.value_dim)}};
}

CudnnAddresses AddressesOf(const AttentionBackwardArgs& args, int64_t token, int64_t kv_head) {
  AttentionArgs gradients = args.forward;
  gradients.q = args.dq;
  gradients.q_stride = args.dq_stride;
  gradients.k = args.dk;
  gradients.k_stride = args.dk_stride;
  gradients.v = args.dv;
  gradients.v_stride = args.dv_stride;
  gradients.out = const_cast<void*>(args.dout);
  CudnnAddresses d = AddressesOf(gradients, token, kv_head);
  CudnnAddresses all = AddressesOf(args.forward, token, kv_head);
  all.insert({{kDQ, d[kQ]}, {kDK, d[kK]}, {kDV, d[kV]}, {kDOut, d[kOut]}});
  return all;
}

int WriteIndex(void* stream, const CudnnGraphKey& key, std::span<const int32_t> starts,
               void* index) {
  cuda::PackedDocuments documents{.documents = static_cast<int32_t>(starts.size()) - 1,
                                  .tensors = kPackedTensors};
  for (size_t d = 0; d < starts.size(); ++d) documents.starts[d] = starts[d] - starts[0];
  documents.token_strides[kPackedQ] = key.q_stride;
  documents.token_strides[kPackedK] = key.k_stride;
  documents.token_strides[kPackedV] = key.v_stride;
  documents.token_strides[kPackedOut] = key.out_stride;
  documents.token_strides[kPackedStatistics] = key.heads;
  documents.token_strides[kPackedDQ] = key.dq_stride;
  documents.token_strides[kPackedDK] = key.dk_stride;
  documents.token_strides[kPackedDV] = key.dv_stride;
  return cuda::WritePackedIndex(stream, documents, index);
}

void AddIndex(bool backward, void* of_queries, void* of_keys, CudnnAddresses* addresses) {
  const auto add = [&](void* index, CudnnOperand lengths,
                       std::initializer_list<PackedTensor> tensors) {
    (*addresses)[lengths] = index;
    for (const PackedTensor tensor : tensors) {
      if (tensor >= kPackedDQ && !backward) continue;
      (*addresses)[OffsetsOf(tensor)] =
          static_cast<char*>(index) + (1 + tensor) * cuda::kPackedArrayBytes;
    }
  };
  add(of_queries, kLengthsOfQ, {kPackedQ, kPackedOut, kPackedStatistics, kPackedDQ});
  add(of_keys, kLengthsOfK, {kPackedK, kPackedV, kPackedDK, kPackedDV});
}

}  // namespace megatrain
