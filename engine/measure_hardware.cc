#include "engine/measure_hardware.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/base/dtype.h"
#include "engine/base/status.h"
#include "engine/memory/host_pool.h"
#include "engine/memory/tile.h"
#include "engine/model/model_layout.h"
#include "engine/optim/adamw.h"
#include "engine/session.h"

namespace megatrain {
namespace {

using Clock = std::chrono::steady_clock;

// Operands of the size that training has: beyond a processor's own caches.
constexpr int64_t kTokens = 512;
constexpr int64_t kHidden = 1024;
constexpr int64_t kWide = 4096;
constexpr int64_t kHeads = 16;
constexpr int64_t kHeadDim = kHidden / kHeads;
// As many elements as the optimizer updates; its state in FP32 is 12 bytes each.
constexpr int64_t kStateElements = int64_t{4} << 20;
constexpr int64_t kCopyBytes = int64_t{32} << 20;
constexpr int kRepetitions = 2;

class Bench {
 public:
  static absl::StatusOr<std::unique_ptr<Bench>> Create(int threads) {
    std::unique_ptr<Bench> bench(new Bench);
    SessionSettings settings;
    settings.threads = threads;
    MT_ASSIGN_OR_RETURN(bench->session_, OpenSession(settings));
    Device& device = *bench->session_->device;
    MT_ASSIGN_OR_RETURN(bench->stream_, device.CreateStream(StreamUse::kCompute));
    MT_ASSIGN_OR_RETURN(bench->done_, device.CreateEvent());
    HostPoolOptions host;
    host.capacity = HostPool::LeaseBytes(TileBytes(kStateElements, DType::kF32)) +
                    HostPool::LeaseBytes(kStateElements * sizeof(float));
    host.touch_threads = threads;
    MT_ASSIGN_OR_RETURN(bench->pool_, HostPool::Create(host));
    MT_ASSIGN_OR_RETURN(bench->state_, bench->pool_->Lease(HostKind::kOther,
                                                           TileBytes(kStateElements, DType::kF32)));
    MT_ASSIGN_OR_RETURN(bench->gradient_,
                        bench->pool_->Lease(HostKind::kOther, kStateElements * sizeof(float)));
    // Three operands, none larger than the weights of the product, or gate and up.
    bench->operand_bytes_ = std::max(kHidden, 2 * kTokens) * kWide * int64_t{sizeof(float)};
    MT_ASSIGN_OR_RETURN(bench->device_memory_,
                        device.Allocate(std::max(kCopyBytes, 3 * bench->operand_bytes_)));
    // Small numbers that are not all the same: a device may be faster on zeros.
    auto* values = static_cast<float*>(bench->gradient_.data());
    for (int64_t i = 0; i < kStateElements; ++i) values[i] = static_cast<float>(i % 251) * 0.001f;
    std::memset(bench->state_.data(), 0, static_cast<size_t>(bench->state_.bytes()));
    const int64_t piece = std::min(bench->operand_bytes_, bench->gradient_.bytes());
    for (int i = 0; i < 3; ++i) {
      MT_RETURN_IF_ERROR(device.CopyToDevice(*bench->stream_, bench->Operand(i), values, piece));
    }
    return bench;
  }

  absl::StatusOr<double> CopyRate(bool to_device) {
    Device& device = *session_->device;
    return Rate(kCopyBytes, [&] {
      return to_device
                 ? device.CopyToDevice(*stream_, device_memory_->data(), state_.data(), kCopyBytes)
                 : device.CopyToHost(*stream_, state_.data(), device_memory_->data(), kCopyBytes);
    });
  }

  absl::StatusOr<double> MatMulRate(DType dtype) {
    MatMulArgs args;
    args.m = kTokens;
    args.n = kWide;
    args.k = kHidden;
    args.dtype = args.out_dtype = dtype;
    args.a = Operand(0);
    args.a_stride = kHidden;
    args.b = Operand(1);
    args.b_stride = kHidden;
    args.transpose_b = true;  // as weights lie
    args.out = Operand(2);
    args.out_stride = kWide;
    return Rate(2.0 * kTokens * kWide * kHidden,
                [&] { return session_->device->kernels().MatMul(*stream_, args); });
  }

  absl::StatusOr<double> AttentionRate(DType dtype) {
    const std::vector<int32_t> documents = {0, kTokens};
    const int64_t bytes = kTokens * kHidden * DTypeBytes(dtype);
    char* const block = static_cast<char*>(Operand(0));
    AttentionArgs args;
    args.dtype = dtype;
    args.tokens = kTokens;
    args.heads = args.kv_heads = kHeads;
    args.head_dim = kHeadDim;
    args.scale = 0.125f;
    args.document_starts = documents.data();
    args.documents = 1;
    args.q = block;
    args.k = block + bytes;
    args.v = block + 2 * bytes;
    args.q_stride = args.k_stride = args.v_stride = kHidden;
    args.out = Operand(1);
    args.lse = static_cast<float*>(Operand(2));
    // Two products over half of the pairs of tokens.
    return Rate(2 * 2.0 * kTokens * kTokens / 2 * kHidden,
                [&] { return session_->device->kernels().Attention(*stream_, args); });
  }

  absl::StatusOr<double> ElementRate(DType dtype) {
    SwiGluArgs args;
    args.dtype = dtype;
    args.tokens = kTokens;
    args.width = kWide;
    args.gate_up = Operand(0);
    args.out = Operand(1);
    return Rate(3.0 * kTokens * kWide * DTypeBytes(dtype),
                [&] { return session_->device->kernels().SwiGlu(*stream_, args); });
  }

  absl::StatusOr<double> UpdateRate(DType dtype) {
    TileLayout layout;
    layout.elements = layout.parameters = kStateElements;
    TensorSpec tensor;
    tensor.shape = {kStateElements};
    tensor.elements = kStateElements;
    layout.tensors = {tensor};
    const Tile tile = MakeTile(&layout, dtype, state_.data());
    AdamWStep step;
    step.learning_rate = 1e-3;
    return Rate(kStateElements * (2.0 * 12 + 4), [&] {
      AdamWUpdate(*session_->update_pool(), step, gradient_.data(), DType::kF32, tile);
      return absl::OkStatus();
    });
  }

 private:
  Bench() = default;
  void* Operand(int index) {
    return static_cast<char*>(device_memory_->data()) + index * operand_bytes_;
  }

  // Of the fastest of a few calls, after one that finds code and memory cold.
  absl::StatusOr<double> Rate(double amount, absl::FunctionRef<absl::Status()> work) {
    double best = 0;
    for (int i = 0; i <= kRepetitions; ++i) {
      const Clock::time_point start = Clock::now();
      MT_RETURN_IF_ERROR(work());
      MT_RETURN_IF_ERROR(session_->device->Record(*stream_, *done_));
      MT_RETURN_IF_ERROR(session_->device->Synchronize(*done_));
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      if (i > 0) best = std::max(best, amount / std::max(seconds, 1e-9));
    }
    return best;
  }

  std::shared_ptr<const Session> session_;
  std::unique_ptr<HostPool> pool_;
  HostLease state_, gradient_;  // go back before the pool ends
  std::unique_ptr<DeviceMemory> device_memory_;
  int64_t operand_bytes_ = 0;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> done_;
};

absl::StatusOr<PrecisionRates> Measure(Bench& bench, DType dtype) {
  PrecisionRates rates;
  MT_ASSIGN_OR_RETURN(rates.matmul_flops_per_second, bench.MatMulRate(dtype));
  MT_ASSIGN_OR_RETURN(rates.attention_flops_per_second, bench.AttentionRate(dtype));
  MT_ASSIGN_OR_RETURN(rates.element_bytes_per_second, bench.ElementRate(dtype));
  MT_ASSIGN_OR_RETURN(rates.update_bytes_per_second, bench.UpdateRate(dtype));
  return rates;
}

}  // namespace

absl::StatusOr<HardwareRates> MeasureHardware(int threads) {
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Bench> bench, Bench::Create(threads));
  HardwareRates rates;
  MT_ASSIGN_OR_RETURN(rates.h2d_bytes_per_second, bench->CopyRate(/*to_device=*/true));
  MT_ASSIGN_OR_RETURN(rates.d2h_bytes_per_second, bench->CopyRate(/*to_device=*/false));
  MT_ASSIGN_OR_RETURN(rates.fp32, Measure(*bench, DType::kF32));
  // The same memory's bits, read as BF16, are small numbers too.
  MT_ASSIGN_OR_RETURN(rates.bf16, Measure(*bench, DType::kBF16));
  rates.threads = threads;
  rates.device_is_host = true;
  return rates;
}

}  // namespace megatrain
