#include "engine/device/cuda/cudnn_attention.h"

// The library is loaded, not linked.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cuda_runtime_api.h>
#include <cudnn_frontend.h>

#include <compare>
#include <exception>
#include <map>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "engine/device/cuda/cuda_api.h"
#include "engine/device/cuda/cudnn_sizes.h"
#include "engine/device/cuda/shared_library.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // what the frontend looks its functions up in
}  // namespace cudnn_frontend

namespace megatrain {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

constexpr char kLibrary[] = "libcudnn.so.9";
// Older ones have not been looked at: what they support, and the memory that they take.
constexpr size_t kVersionMin = 91900;
// A graph takes half a second to build: lengths that sequences have, not those that single
// documents or a text that grows by a token happen to have.
constexpr int64_t kLengthStep = 512;
constexpr int64_t kAlignment = 256;

// The operands of a graph, by the numbers that calls give their addresses by.
enum Uid : int64_t { kQ = 1, kK, kV, kOut, kStatistics, kDOut, kDQ, kDK, kDV };
using Addresses = std::unordered_map<int64_t, void*>;

// What a graph is made for.
struct Key {
  bool backward = false;
  int64_t documents = 0, length = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0;  // of tokens
  int64_t statistics_stride = 0;                                     // of heads
  int64_t dq_stride = 0, dk_stride = 0, dv_stride = 0;
  float scale = 0;

  auto operator<=>(const Key&) const = default;
};

struct Plan {
  std::shared_ptr<fe::graph::Graph> graph;  // null: cuDNN has none for it
  int64_t workspace_bytes = 0;
};

// The length of all documents, or 0 if they differ.
int64_t CommonLength(const AttentionArgs& args) {
  const int64_t length = args.document_starts[1] - args.document_starts[0];
  for (int64_t d = 1; d < args.documents; ++d) {
    if (args.document_starts[d + 1] - args.document_starts[d] != length) return 0;
  }
  return length;
}

bool Aligned(std::initializer_list<const void*> addresses,
             std::initializer_list<int64_t> distances) {
  for (const void* address : addresses) {
    if (reinterpret_cast<uintptr_t>(address) % 16 != 0) return false;
  }
  for (const int64_t distance : distances) {
    if (distance * 2 % 16 != 0) return false;
  }
  return true;
}

bool Takes(const AttentionArgs& args) {
  return args.dtype == DType::kBF16 && args.tokens > 0 && args.head_dim % 8 == 0 &&
         CommonLength(args) > 0 && CommonLength(args) % kLengthStep == 0 &&
         Aligned({args.q, args.k, args.v, args.out}, {args.q_stride, args.k_stride, args.v_stride});
}

// A graph that is being made.
class GraphMaker {
 public:
  explicit GraphMaker(const Key& key) : key_(key), graph_(std::make_shared<fe::graph::Graph>()) {
    graph_->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  std::shared_ptr<fe::graph::Graph> Forward() {
    const Tensor q = Operand(kQ, key_.heads, key_.q_stride);
    const Tensor k = Operand(kK, key_.kv_heads, key_.k_stride);
    const Tensor v = Operand(kV, key_.kv_heads, key_.v_stride);
    auto options = fe::graph::SDPA_attributes().set_generate_stats(true).set_attn_scale(key_.scale);
    Causal(options);
    const auto [out, statistics] = graph_->sdpa(q, k, v, options);
    Describe(out, kOut, key_.heads, key_.out_stride)->set_output(true);
    DescribeStatistics(statistics)->set_output(true);
    return graph_;
  }

  std::shared_ptr<fe::graph::Graph> Backward() {
    const Tensor q = Operand(kQ, key_.heads, key_.q_stride);
    const Tensor k = Operand(kK, key_.kv_heads, key_.k_stride);
    const Tensor v = Operand(kV, key_.kv_heads, key_.v_stride);
    const Tensor out = Operand(kOut, key_.heads, key_.out_stride);
    const Tensor dout = Operand(kDOut, key_.heads, key_.out_stride);
    const Tensor statistics = DescribeStatistics(graph_->tensor(fe::graph::Tensor_attributes()));
    auto options = fe::graph::SDPA_backward_attributes()
                       .set_attn_scale(key_.scale)
                       .set_deterministic_algorithm(true);
    Causal(options);
    const auto [dq, dk, dv] = graph_->sdpa_backward(q, k, v, out, dout, statistics, options);
    Describe(dq, kDQ, key_.heads, key_.dq_stride)->set_output(true);
    Describe(dk, kDK, key_.kv_heads, key_.dk_stride)->set_output(true);
    Describe(dv, kDV, key_.kv_heads, key_.dv_stride)->set_output(true);
    return graph_;
  }

 private:
  // [documents, heads, length, head_dim], where tokens lie `stride` elements apart.
  Tensor Describe(const Tensor& tensor, Uid uid, int64_t heads, int64_t stride) const {
    tensor->set_uid(uid)
        .set_dim({key_.documents, heads, key_.length, key_.head_dim})
        .set_stride({key_.length * stride, key_.head_dim, stride, 1});
    return tensor;
  }
  Tensor Operand(Uid uid, int64_t heads, int64_t stride) {
    return Describe(graph_->tensor(fe::graph::Tensor_attributes()), uid, heads, stride);
  }
  // [documents, heads, length, 1] of [heads, tokens].
  Tensor DescribeStatistics(const Tensor& tensor) const {
    // One document's are packed, and are to be described as such.
    const int64_t document =
        key_.documents == 1 ? key_.heads * key_.statistics_stride : key_.length;
    tensor->set_uid(kStatistics)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({key_.documents, key_.heads, key_.length, 1})
        .set_stride({document, key_.statistics_stride, 1, 1});
    return tensor;
  }
  template <typename Options>
  static void Causal(Options& options) {
    options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
  }

  const Key key_;
  const std::shared_ptr<fe::graph::Graph> graph_;
};

class LoadedCudnnAttention : public CudnnAttention {
 public:
  LoadedCudnnAttention(cudnnHandle_t handle, size_t version) : handle_(handle), version_(version) {}
  ~LoadedCudnnAttention() override { (void)fe::detail::destroy_handle(handle_); }

  std::string Version() const override {
    return absl::StrCat("cuDNN ", version_ / 10000, ".", version_ / 100 % 100, ".", version_ % 100);
  }

  int Forward(void* stream, const AttentionArgs& args, void* workspace,
              int64_t workspace_bytes) override {
    if (!Takes(args)) return kNotTaken;
    Key key = KeyOf(args);
    key.documents = args.documents;
    key.heads = args.heads;
    key.kv_heads = args.kv_heads;
    key.statistics_stride = args.tokens;
    return Run(stream, key,
               {{kQ, const_cast<void*>(args.q)},
                {kK, const_cast<void*>(args.k)},
                {kV, const_cast<void*>(args.v)},
                {kOut, args.out},
                {kStatistics, args.lse}},
               workspace, workspace_bytes);
  }

  // One document and some heads at a time.
  int Backward(void* stream, const AttentionBackwardArgs& args) override {
    const AttentionArgs& f = args.forward;
    if (!Takes(f) || !Aligned({args.dout, args.dq, args.dk, args.dv},
                              {args.dq_stride, args.dk_stride, args.dv_stride})) {
      return kNotTaken;
    }
    Key key = KeyOf(f);
    key.backward = true;
    key.documents = 1;
    key.dq_stride = args.dq_stride;
    key.dk_stride = args.dk_stride;
    key.dv_stride = args.dv_stride;
    const int64_t group = f.heads / f.kv_heads;
    key.kv_heads = f.kv_heads;
    const auto too_many = [&] {
      return f.kv_heads % key.kv_heads != 0 ||
             CudnnGradientBytes(key.kv_heads * group, key.length, key.head_dim) >
                 args.workspace_bytes;
    };
    while (key.kv_heads > 0 && too_many()) --key.kv_heads;
    if (key.kv_heads == 0) return kNotTaken;
    key.heads = key.kv_heads * group;
    key.statistics_stride = key.length;  // packed

    // The statistics of a document among others do not lie packed: a copy does, before the rest.
    const bool copies = f.documents > 1;
    const int64_t copy_bytes =
        copies ? (key.heads * key.length * 4 + kAlignment - 1) / kAlignment * kAlignment : 0;
    for (int64_t document = 0; document < f.documents; ++document) {
      const int64_t token = document * key.length;
      for (int64_t kv_head = 0; kv_head < f.kv_heads; kv_head += key.kv_heads) {
        const int64_t head = kv_head * group;
        float* statistics = f.lse + head * f.tokens + token;
        if (copies) {
          const cudaError_t error =
              cudaMemcpy2DAsync(args.workspace, static_cast<size_t>(key.length) * 4, statistics,
                                static_cast<size_t>(f.tokens) * 4,
                                static_cast<size_t>(key.length) * 4, static_cast<size_t>(key.heads),
                                cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream));
          if (error != cudaSuccess) return error;
          statistics = static_cast<float*>(args.workspace);
        }
        const auto at = [&](const void* operand, int64_t stride, int64_t first_head) -> void* {
          return static_cast<char*>(const_cast<void*>(operand)) +
                 2 * (token * stride + first_head * f.head_dim);
        };
        const int status =
            Run(stream, key,
                {{kQ, at(f.q, f.q_stride, head)},
                 {kK, at(f.k, f.k_stride, kv_head)},
                 {kV, at(f.v, f.v_stride, kv_head)},
                 {kOut, at(f.out, key.out_stride, head)},
                 {kStatistics, statistics},
                 {kDOut, at(args.dout, key.out_stride, head)},
                 {kDQ, at(args.dq, args.dq_stride, head)},
                 {kDK, at(args.dk, args.dk_stride, kv_head)},
                 {kDV, at(args.dv, args.dv_stride, kv_head)}},
                static_cast<char*>(args.workspace) + copy_bytes, args.workspace_bytes - copy_bytes);
        // All calls have one plan: the first says kNotTaken, or none does.
        if (status != 0) return status;
      }
    }
    return 0;
  }

 private:
  static Key KeyOf(const AttentionArgs& args) {
    Key key;
    key.length = CommonLength(args);
    key.head_dim = args.head_dim;
    key.q_stride = args.q_stride;
    key.k_stride = args.k_stride;
    key.v_stride = args.v_stride;
    key.out_stride = args.heads * args.head_dim;
    key.scale = args.scale;
    return key;
  }

  int Run(void* stream, const Key& key, Addresses addresses, void* workspace,
          int64_t workspace_bytes) {
    MutexLock lock(&mutex_);  // the handle has one stream at a time
    auto plan = plans_.find(key);
    if (plan == plans_.end()) plan = plans_.emplace(key, Make(key)).first;
    if (plan->second.graph == nullptr || plan->second.workspace_bytes > workspace_bytes) {
      return kNotTaken;
    }
    try {
      const cudnnStatus_t set = fe::detail::set_stream(handle_, static_cast<cudaStream_t>(stream));
      if (set != CUDNN_STATUS_SUCCESS) return kAttentionFailed + set;
      fe::error_t error = plan->second.graph->execute(handle_, addresses, workspace);
      return error.is_good() ? 0 : kAttentionFailed + static_cast<int>(error.get_code());
    } catch (const std::exception&) {  // the frontend's
      return kAttentionFailed;
    }
  }

  // The first engine that cuDNN's heuristics name and that can be built: never a timed one.
  Plan Make(const Key& key) {
    Plan plan;
    try {
      GraphMaker maker(key);
      std::shared_ptr<fe::graph::Graph> graph = key.backward ? maker.Backward() : maker.Forward();
      if (graph->build(handle_, {fe::HeurMode_t::A}).is_good() &&
          graph->get_workspace_size(plan.workspace_bytes).is_good()) {
        plan.graph = std::move(graph);
      }
    } catch (const std::exception&) {  // the frontend's: no graph
    }
    return plan;
  }

  const cudnnHandle_t handle_;
  const size_t version_;
  Mutex mutex_;
  std::map<Key, Plan> plans_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudnnAttention>> CudnnAttention::Load() {
  MT_ASSIGN_OR_RETURN(fe::cudnn_dlhandle, OpenSharedLibrary(kLibrary));
  try {
    // The frontend looks for a runtime of its own (libcudart.so) and throws where there is none:
    // better now than in a step.
    int device = 0;
    if (const cudaError_t error = fe::detail::cuda_get_device(&device); error != cudaSuccess) {
      return absl::UnavailableError(
          absl::StrCat("cudaGetDevice gave ", static_cast<int>(error), " to cuDNN's frontend"));
    }
    const size_t version = fe::detail::get_backend_version();
    if (version < kVersionMin) {
      return absl::UnavailableError(
          absl::StrCat("cuDNN ", version, " is older than ", kVersionMin));
    }
    cudnnHandle_t handle = nullptr;
    if (const cudnnStatus_t status = fe::detail::create_handle(&handle);
        status != CUDNN_STATUS_SUCCESS) {
      return absl::UnavailableError(absl::StrCat("cudnnCreate gave ", static_cast<int>(status)));
    }
    return std::make_unique<LoadedCudnnAttention>(handle, version);
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("cuDNN: ", error.what()));
  }
}

}  // namespace megatrain
