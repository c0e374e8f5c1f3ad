#include "engine/device/cuda/libraries/cudnn_graphs.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

namespace megatrain {
namespace {

// The frontend's dlopen.
void* OpenForFrontend(const char* name, int flags);

}  // namespace
}  // namespace megatrain

// The library is loaded, not linked. The frontend also opens a CUDA runtime by name, and takes
// version 12's, or refuses, where it finds that beside version 13's: it is given ours to find.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define dlopen ::megatrain::OpenForFrontend
#include <cudnn_frontend.h>
#undef dlopen

#include <exception>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/device/cuda/kernels/launchers.h"
#include "engine/device/cuda/libraries/cuda_api.h"
#include "engine/device/cuda/libraries/shared_library.h"

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
constexpr int kCudaMajor = CUDART_VERSION / 1000;

const std::string& RuntimeName() {
  static const auto& name = *new std::string(absl::StrCat("libcudart.so.", kCudaMajor));
  return name;
}

void* OpenForFrontend(const char* name, int flags) {
  if (!absl::StartsWith(name, "libcudart.so")) return dlopen(name, flags);
  if (name != RuntimeName()) return nullptr;
  const absl::StatusOr<SharedLibrary> runtime = OpenSharedLibrary(name);
  return runtime.ok() ? runtime->handle : nullptr;
}

std::string VersionText(size_t version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

static_assert(kPackedTensors <= cuda::kPackedTensorsMax);

// A device that is not here; no properties: the handle's device.
struct AbsentDevice {
  std::shared_ptr<const fe::DeviceProperties> properties;
  int32_t capability = 0;
};

// A graph that is being made.
class GraphMaker {
 public:
  GraphMaker(const CudnnGraphKey& key, const AbsentDevice& device)
      : key_(key), graph_(std::make_shared<fe::graph::Graph>()) {
    // Operations take the device over when they are added.
    if (device.properties != nullptr) {
      graph_->set_device_properties(device.properties).set_sm_version(device.capability);
    }
    graph_->set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }

  std::shared_ptr<fe::graph::Graph> Make() {
    if (key_.backward) {
      Backward();
    } else {
      Forward();
    }
    return graph_;
  }

 private:
  void Forward() {
    const Tensor q = Operand(kQ, key_.heads, key_.head_dim, key_.q_stride, kPackedQ);
    const Tensor k = Operand(kK, key_.kv_heads, key_.head_dim, key_.k_stride, kPackedK);
    const Tensor v = Operand(kV, key_.kv_heads, key_.value_dim, key_.v_stride, kPackedV);
    auto options = fe::graph::SDPA_attributes().set_generate_stats(true).set_attn_scale(key_.scale);
    Mask(options);
    const auto [out, statistics] = graph_->sdpa(q, k, v, options);
    Describe(out, kOut, key_.heads, key_.value_dim, key_.out_stride, kPackedOut)->set_output(true);
    DescribeStatistics(statistics)->set_output(true);
  }

  // The gradient's own bounds on tokens of all documents together (max_total_seq_len) are not
  // given: with them its sums would lie as the operands do, gaps between tokens included.
  void Backward() {
    const Tensor q = Operand(kQ, key_.heads, key_.head_dim, key_.q_stride, kPackedQ);
    const Tensor k = Operand(kK, key_.kv_heads, key_.head_dim, key_.k_stride, kPackedK);
    const Tensor v = Operand(kV, key_.kv_heads, key_.value_dim, key_.v_stride, kPackedV);
    const Tensor out = Operand(kOut, key_.heads, key_.value_dim, key_.out_stride, kPackedOut);
    const Tensor dout = Operand(kDOut, key_.heads, key_.value_dim, key_.out_stride, kPackedOut);
    const Tensor statistics = DescribeStatistics(graph_->tensor(fe::graph::Tensor_attributes()));
    auto options = fe::graph::SDPA_backward_attributes()
                       .set_attn_scale(key_.scale)
                       .set_deterministic_algorithm(true);
    Mask(options);
    const auto [dq, dk, dv] = graph_->sdpa_backward(q, k, v, out, dout, statistics, options);
    Describe(dq, kDQ, key_.heads, key_.head_dim, key_.dq_stride, kPackedDQ)->set_output(true);
    Describe(dk, kDK, key_.kv_heads, key_.head_dim, key_.dk_stride, kPackedDK)->set_output(true);
    Describe(dv, kDV, key_.kv_heads, key_.value_dim, key_.dv_stride, kPackedDV)->set_output(true);
  }

  // [documents, heads, length, dim], where tokens lie `stride` elements apart.
  Tensor Describe(const Tensor& tensor, CudnnOperand uid, int64_t heads, int64_t dim,
                  int64_t stride, PackedTensor packed) {
    tensor->set_uid(uid)
        .set_dim({key_.documents, heads, key_.length, dim})
        .set_stride({key_.length * stride, dim, stride, 1});
    if (key_.packed) tensor->set_ragged_offset(Offsets(packed));
    return tensor;
  }
  Tensor Operand(CudnnOperand uid, int64_t heads, int64_t dim, int64_t stride,
                 PackedTensor packed) {
    return Describe(graph_->tensor(fe::graph::Tensor_attributes()), uid, heads, dim, stride,
                    packed);
  }

  // [documents, heads, length, 1] of [heads, tokens], or of [tokens, heads].
  Tensor DescribeStatistics(const Tensor& tensor) {
    tensor->set_uid(kStatistics)
        .set_data_type(fe::DataType_t::FLOAT)
        .set_dim({key_.documents, key_.heads, key_.length, 1});
    if (key_.packed) {
      tensor->set_stride({key_.heads * key_.length, 1, key_.heads, 1})
          .set_ragged_offset(Offsets(kPackedStatistics));
      return tensor;
    }
    // One document's are packed, and are to be described as such.
    const int64_t document =
        key_.documents == 1 ? key_.heads * key_.statistics_stride : key_.length;
    tensor->set_stride({document, key_.statistics_stride, 1, 1});
    return tensor;
  }

  // Makes the tensor of the documents' beginnings and the end of the last one: int64 [documents +
  // 1].
  Tensor Offsets(PackedTensor packed) {
    if (offsets_[packed] == nullptr) {
      offsets_[packed] = Integers(OffsetsOf(packed), key_.documents + 1, fe::DataType_t::INT64);
    }
    return offsets_[packed];
  }
  Tensor Integers(int64_t uid, int64_t count, fe::DataType_t type) {
    return graph_->tensor(fe::graph::Tensor_attributes()
                              .set_uid(uid)
                              .set_dim({count, 1, 1, 1})
                              .set_stride({1, 1, 1, 1})
                              .set_data_type(type));
  }

  template <typename Options>
  void Mask(Options& options) {
    if (key_.causal) {
      options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
          .set_diagonal_band_right_bound(0);
    }
    // cuDNN keeps the scores whose key + left bound > query.
    if (key_.window > 0) options.set_diagonal_band_left_bound(static_cast<int>(key_.window));
    if (!key_.packed) return;
    options.set_padding_mask(true)
        .set_seq_len_q(Integers(kLengthsOfQ, key_.documents, fe::DataType_t::INT32))
        .set_seq_len_kv(Integers(kLengthsOfK, key_.documents, fe::DataType_t::INT32));
  }

  const CudnnGraphKey key_;
  const std::shared_ptr<fe::graph::Graph> graph_;
  Tensor offsets_[kPackedTensors];
};

class BuiltGraph : public CudnnGraph {
 public:
  BuiltGraph(std::shared_ptr<fe::graph::Graph> graph, int64_t workspace_bytes)
      : graph_(std::move(graph)), workspace_bytes_(workspace_bytes) {}

  fe::graph::Graph& graph() const { return *graph_; }
  int64_t workspace_bytes() const override { return workspace_bytes_; }

 private:
  const std::shared_ptr<fe::graph::Graph> graph_;
  const int64_t workspace_bytes_;
};

// Handles for the thread's device. One thread at a time may use a handle.
struct Handles {
  Handles() = default;
  Handles(Handles&& other)
      : make(std::exchange(other.make, nullptr)), run(std::exchange(other.run, nullptr)) {}
  ~Handles() {
    for (cudnnHandle_t handle : {make, run}) {
      if (handle != nullptr) (void)fe::detail::destroy_handle(handle);
    }
  }

  cudnnHandle_t make = nullptr, run = nullptr;
};

// With handles of the device, or with its properties.
class LoadedCudnnGraphs : public CudnnGraphs {
 public:
  LoadedCudnnGraphs(CudaLibrary library, Handles handles)
      : library_(std::move(library)), handles_(std::move(handles)) {}
  LoadedCudnnGraphs(CudaLibrary library, AbsentDevice device)
      : library_(std::move(library)), device_(std::move(device)) {}
  CudaLibrary Library() const override { return library_; }

  absl::StatusOr<std::unique_ptr<CudnnGraph>> Make(const CudnnGraphKey& key) override {
    try {
      const std::shared_ptr<fe::graph::Graph> graph = GraphMaker(key, device_).Make();
      int64_t workspace_bytes = 0;
      fe::error_t error = device_.properties == nullptr
                              ? graph->build(handles_.make, {fe::HeurMode_t::A})
                              : graph->build({fe::HeurMode_t::A});
      if (error.is_good()) error = graph->get_workspace_size(workspace_bytes);
      if (error.is_bad()) return absl::UnimplementedError(error.get_message());
      return std::make_unique<BuiltGraph>(graph, workspace_bytes);
    } catch (const std::exception& error) {  // the frontend's
      return absl::UnimplementedError(error.what());
    }
  }

  int Run(void* stream, const CudnnGraph& graph, CudnnAddresses addresses,
          void* workspace) override {
    if (handles_.run == nullptr) return kAttentionFailed;
    try {
      const cudnnStatus_t set =
          fe::detail::set_stream(handles_.run, static_cast<cudaStream_t>(stream));
      if (set != CUDNN_STATUS_SUCCESS) return kAttentionFailed + set;
      fe::error_t error =
          static_cast<const BuiltGraph&>(graph).graph().execute(handles_.run, addresses, workspace);
      return error.is_good() ? 0 : kAttentionFailed + static_cast<int>(error.get_code());
    } catch (const std::exception&) {  // the frontend's
      return kAttentionFailed;
    }
  }

 private:
  const CudaLibrary library_;
  const Handles handles_;
  const AbsentDevice device_;
};

// cuDNN compiles graphs by NVRTC, which it opens by name, as NVRTC does a library of its own: each
// is found wherever it lies once it is open. Returns what is to be told: why it is not.
std::string OpenCompiler() {
  const absl::StatusOr<SharedLibrary> nvrtc =
      OpenSharedLibrary(absl::StrCat("libnvrtc.so.", kCudaMajor));
  if (!nvrtc.ok()) return absl::StrCat("; it cannot compile: ", nvrtc.status().message());
  const std::string directory = nvrtc->path.substr(0, nvrtc->path.rfind('/'));
  std::string why;  // empty if there is no such file: the loader may know it elsewhere
  for (const std::string& file :
       FindLibraryFiles(absl::StrCat("libnvrtc-builtins.so.", kCudaMajor, "*"), {directory})) {
    if (dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) return "";
    absl::StrAppend(&why, "; it may not compile: ", dlerror());
  }
  return why;
}

// Returns whether a cuDNN has the versions that are needed: a system's own may be older than that
// of Python's packages. One whose name says that it is too old is not asked: to answer, it loads
// parts of its own that cannot be unloaded, and that every other cuDNN would then take for its own.
absl::Status SuitsAsCudnn(const SharedLibrary& cudnn) {
  const auto unfit = [&](const std::string& what) {
    return absl::UnavailableError(absl::StrCat(cudnn.path, " is cuDNN ", what, ", and ",
                                               VersionText(kVersionMin), " or newer for CUDA ",
                                               kCudaMajor, " is needed"));
  };
  if (const auto named = VersionInName(cudnn.path)) {
    const auto [major, minor, patch] = *named;
    const size_t version = static_cast<size_t>(10000 * major + 100 * minor + patch);
    if (version < kVersionMin) return unfit(VersionText(version));
  }
  decltype(&cudnnGetVersion) version_of = nullptr;
  decltype(&cudnnGetCudartVersion) cuda_of = nullptr;
  FunctionFinder find(cudnn.handle);
  find(version_of, "cudnnGetVersion");
  find(cuda_of, "cudnnGetCudartVersion");
  if (const char* missing = find.missing(); missing != nullptr) {
    return absl::UnavailableError(absl::StrCat(cudnn.path, " has no ", missing));
  }
  if (version_of() >= kVersionMin && cuda_of() / 1000 == kCudaMajor) return absl::OkStatus();
  return unfit(absl::StrCat(VersionText(version_of()), " for CUDA ", cuda_of() / 1000));
}

// Opens cuDNN, and what it and its frontend need beside it.
absl::StatusOr<CudaLibrary> LoadCudnn() {
  MT_ASSIGN_OR_RETURN(const SharedLibrary cudnn, OpenSharedLibrary(kLibrary, SuitsAsCudnn));
  fe::cudnn_dlhandle = cudnn.handle;
  const size_t version = fe::detail::get_backend_version();
  if (const absl::Status status = OpenSharedLibrary(RuntimeName()).status(); !status.ok()) {
    return absl::UnavailableError(absl::StrCat("cuDNN's frontend needs ", status.message()));
  }
  return CudaLibrary{kCudnn, VersionText(version), absl::StrCat(cudnn.Describe(), OpenCompiler())};
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudnnGraphs>> CudnnGraphs::Open() {
  try {
    MT_ASSIGN_OR_RETURN(CudaLibrary library, LoadCudnn());
    // An exception of the frontend should come now and not in a step.
    int device = 0;
    if (const cudaError_t error = fe::detail::cuda_get_device(&device); error != cudaSuccess) {
      return absl::UnavailableError(
          absl::StrCat("cudaGetDevice gave ", static_cast<int>(error), " to cuDNN's frontend"));
    }
    Handles handles;
    cudnnStatus_t status = fe::detail::create_handle(&handles.make);
    if (status == CUDNN_STATUS_SUCCESS) status = fe::detail::create_handle(&handles.run);
    if (status != CUDNN_STATUS_SUCCESS) {
      return absl::UnavailableError(absl::StrCat("cudnnCreate of ", library.place, " gave ",
                                                 static_cast<int>(status), ": ",
                                                 fe::detail::get_error_string(status)));
    }
    return std::make_unique<LoadedCudnnGraphs>(std::move(library), std::move(handles));
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("cuDNN: ", error.what()));
  }
}

absl::StatusOr<std::unique_ptr<CudnnGraphs>> CudnnGraphs::OpenFor(const std::string& properties,
                                                                  int32_t capability) {
  try {
    MT_ASSIGN_OR_RETURN(CudaLibrary library, LoadCudnn());
    auto read = std::make_shared<fe::DeviceProperties>();
    fe::error_t error = read->deserialize({properties.begin(), properties.end()});
    if (error.is_bad()) return absl::InvalidArgumentError(error.get_message());
    return std::make_unique<LoadedCudnnGraphs>(std::move(library),
                                               AbsentDevice{std::move(read), capability});
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("cuDNN: ", error.what()));
  }
}

}  // namespace megatrain
