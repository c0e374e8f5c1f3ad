#include "engine/host/measure_hardware.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/base/dtype.h"
#include "engine/base/status.h"
#include "engine/memory/host_pool.h"
#include "engine/model/model_layout.h"
#include "engine/model/tile.h"
#include "engine/optim/adamw_updater.h"

namespace megatrain {
namespace {

using Clock = std::chrono::steady_clock;
using Work = absl::FunctionRef<absl::Status()>;

// Updates that may tune the optimizer, twice what it takes.
constexpr int kTuningUpdatesMax = 162;
constexpr int kLaunches = 200;
// Host memory that an update moves for a parameter: its state, read and written, and its gradient.
constexpr double kUpdateBytes = 2 * 12 + 4;

constexpr int64_t Aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Events around a part of a stream's work.
struct Span {
  std::unique_ptr<Event> start, end;
};

class Bench {
 public:
  static absl::StatusOr<std::unique_ptr<Bench>> Create(const Session& session,
                                                       const MeasurementSizes& sizes) {
    std::unique_ptr<Bench> bench(new Bench(session, sizes));
    MT_RETURN_IF_ERROR(bench->TakeHost());
    MT_RETURN_IF_ERROR(bench->TakeDevice());
    return bench;
  }
  ~Bench() {
    // Copies in flight, after an error, end before their memory goes.
    for (std::unique_ptr<Stream>* stream : {&kernels_, &to_device_, &to_host_}) *stream = nullptr;
    if (pinned_) device_.UnpinHost(pool_->data());
  }

  absl::Status CopyRates(HardwareRates* rates) {
    MT_ASSIGN_OR_RETURN(
        rates->h2d_bytes_per_second,
        Rate(*to_device_, static_cast<double>(s_.copy_bytes), [&] { return CopyToDevice(); }));
    MT_ASSIGN_OR_RETURN(
        rates->d2h_bytes_per_second,
        Rate(*to_host_, static_cast<double>(s_.copy_bytes), [&] { return CopyToHost(); }));
    // The cpu device's copies are the processors' work, and cannot but take turns with all else.
    if (device_is_host_) return absl::OkStatus();
    MT_ASSIGN_OR_RETURN(const Span in, MakeSpan());
    MT_ASSIGN_OR_RETURN(const Span out, MakeSpan());
    MT_RETURN_IF_ERROR(device_.Record(*to_device_, *in.start));
    MT_RETURN_IF_ERROR(device_.Record(*to_host_, *out.start));
    for (int i = 0; i < s_.repetitions; ++i) {
      MT_RETURN_IF_ERROR(CopyToDevice());
      MT_RETURN_IF_ERROR(CopyToHost());
    }
    MT_RETURN_IF_ERROR(device_.Record(*to_device_, *in.end));
    MT_RETURN_IF_ERROR(device_.Record(*to_host_, *out.end));
    const double bytes = static_cast<double>(s_.copy_bytes) * s_.repetitions;
    MT_ASSIGN_OR_RETURN(const double in_seconds, SecondsOf(in));
    MT_ASSIGN_OR_RETURN(const double out_seconds, SecondsOf(out));
    rates->h2d_beside_d2h_bytes_per_second = bytes / in_seconds;
    rates->d2h_beside_h2d_bytes_per_second = bytes / out_seconds;
    return absl::OkStatus();
  }

  absl::StatusOr<PrecisionRates> Measure(DType dtype) {
    PrecisionRates rates;
    MT_ASSIGN_OR_RETURN(rates.matmul_flops_per_second, MatMulRate(dtype));
    MT_ASSIGN_OR_RETURN(rates.attention_flops_per_second, AttentionRate(dtype));
    MT_ASSIGN_OR_RETURN(rates.attention_backward_flops_per_second, AttentionBackwardRate(dtype));
    MT_ASSIGN_OR_RETURN(rates.element_bytes_per_second, ElementRate(dtype));
    rates.update_bytes_per_second = UpdateRate(dtype);
    return rates;
  }

  // Measures what updates and copies of both directions move together. REQUIRES: CopyRates was
  // called, and Measure for FP32.
  absl::Status HostMemoryRate(HardwareRates* rates) {
    if (device_is_host_) return absl::OkStatus();
    const double update_bytes = static_cast<double>(s_.state_elements) * kUpdateBytes;
    const double copy_bytes = static_cast<double>(s_.copy_bytes);
    // Copies that last three times as long as the updates would alone.
    const double alone = s_.repetitions * update_bytes / rates->fp32.update_bytes_per_second;
    const auto copies = static_cast<size_t>(
        std::ceil(3 * alone * rates->h2d_beside_d2h_bytes_per_second / copy_bytes));
    std::vector<std::unique_ptr<Event>> events[2];  // the start, and the end of each copy
    const auto record = [&] {
      Stream* const streams[2] = {to_device_.get(), to_host_.get()};
      for (int i = 0; i < 2; ++i) {
        MT_ASSIGN_OR_RETURN(std::unique_ptr<Event> event, device_.CreateEvent());
        MT_RETURN_IF_ERROR(device_.Record(*streams[i], *event));
        events[i].push_back(std::move(event));
      }
      return absl::OkStatus();
    };
    MT_RETURN_IF_ERROR(record());
    for (size_t n = 0; n < copies; ++n) {
      MT_RETURN_IF_ERROR(CopyToDevice());
      MT_RETURN_IF_ERROR(CopyToHost());
      MT_RETURN_IF_ERROR(record());
    }
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < s_.repetitions; ++i) Update(DType::kF32);
    const double seconds =
        std::max(std::chrono::duration<double>(Clock::now() - start).count(), 1e-9);
    double bytes = s_.repetitions * update_bytes;
    for (const std::vector<std::unique_ptr<Event>>& direction : events) {
      for (size_t n = 1; n < direction.size(); ++n) {
        MT_RETURN_IF_ERROR(device_.Synchronize(*direction[n]));
        MT_ASSIGN_OR_RETURN(const double ended,
                            device_.ElapsedSeconds(*direction[0], *direction[n]));
        if (ended <= seconds) bytes += copy_bytes;
      }
    }
    rates->host_memory_bytes_per_second = bytes / seconds;
    return absl::OkStatus();
  }

  // Measures the time from one kernel that has next to nothing to do to the next: a row's norm,
  // many times. A call of the cpu device launches nothing.
  absl::Status LaunchRate(HardwareRates* rates) {
    if (device_is_host_) return absl::OkStatus();
    RmsNormArgs args;
    args.rows = 1;
    args.width = s_.head_dim;
    args.x = args.weight = Operand(0);
    args.y = Operand(1);
    args.x_stride = args.y_stride = s_.head_dim;
    args.rstd = static_cast<float*>(Operand(2));
    MT_ASSIGN_OR_RETURN(const double launches_per_second, Rate(*kernels_, kLaunches, [&] {
                          for (int i = 0; i < kLaunches; ++i) {
                            MT_RETURN_IF_ERROR(device_.kernels().RmsNorm(*kernels_, args));
                          }
                          return absl::OkStatus();
                        }));
    rates->launch_seconds = 1 / launches_per_second;
    return absl::OkStatus();
  }

 private:
  Bench(const Session& session, const MeasurementSizes& sizes)
      : session_(session),
        s_(sizes),
        device_(*session.first().device),
        device_is_host_(session.settings.device == kCpuDeviceId) {}

  absl::Status TakeHost() {
    const int64_t state_bytes = TileBytes(s_.state_elements, DType::kF32);
    const int64_t gradient_bytes = s_.state_elements * int64_t{sizeof(float)};
    HostPoolOptions options;
    options.capacity = HostPool::LeaseBytes(state_bytes) + HostPool::LeaseBytes(gradient_bytes) +
                       HostPool::LeaseBytes(2 * s_.copy_bytes);
    options.touch_threads = session_.settings.threads;
    if (device_.numa_node() >= 0) options.numa_nodes = {device_.numa_node()};
    MT_ASSIGN_OR_RETURN(pool_, HostPool::Create(options));
    MT_RETURN_IF_ERROR(device_.PinHost(pool_->data(), pool_->capacity(), nullptr));
    pinned_ = true;
    MT_ASSIGN_OR_RETURN(state_, pool_->Lease(HostKind::kOther, state_bytes));
    MT_ASSIGN_OR_RETURN(gradient_, pool_->Lease(HostKind::kOther, gradient_bytes));
    MT_ASSIGN_OR_RETURN(copied_, pool_->Lease(HostKind::kOther, 2 * s_.copy_bytes));
    // Small numbers that are not all the same: a device may be faster on zeros.
    auto* const values = static_cast<float*>(gradient_.data());
    for (int64_t i = 0; i < s_.state_elements; ++i) {
      values[i] = static_cast<float>(i % 251) * 0.001f;
    }
    std::memset(state_.data(), 0, static_cast<size_t>(state_.bytes()));
    return absl::OkStatus();
  }

  absl::Status TakeDevice() {
    MT_ASSIGN_OR_RETURN(kernels_, device_.CreateStream(StreamUse::kCompute));
    MT_ASSIGN_OR_RETURN(to_device_, device_.CreateStream(StreamUse::kCopy));
    MT_ASSIGN_OR_RETURN(to_host_, device_.CreateStream(StreamUse::kCopy));
    // Three operands, none larger than the weights of the product, gate and up, or three of
    // attention's and its statistics; the token's document; what copies of both directions at once
    // are made to and from; attention's workspace.
    operand_bytes_ =
        Aligned(std::max(std::max(s_.hidden, 2 * s_.tokens) * s_.wide, 4 * s_.tokens * s_.hidden) *
                int64_t{sizeof(float)});
    const int64_t bounds_bytes = Aligned(2 * s_.tokens * int64_t{sizeof(int32_t)});
    copies_offset_ = 3 * operand_bytes_ + bounds_bytes;
    workspace_offset_ = copies_offset_ + 2 * Aligned(s_.copy_bytes);
    MT_ASSIGN_OR_RETURN(device_memory_, device_.Allocate(workspace_offset_ +
                                                         std::max(WorkspaceBytes(DType::kF32),
                                                                  WorkspaceBytes(DType::kBF16))));
    documents_ = {0, static_cast<int32_t>(s_.tokens)};
    const int64_t piece = std::min(operand_bytes_, gradient_.bytes());
    for (int i = 0; i < 3; ++i) {
      MT_RETURN_IF_ERROR(device_.Upload(*kernels_, Operand(i), gradient_.data(), piece));
    }
    std::vector<int32_t> bounds(static_cast<size_t>(2 * s_.tokens));
    for (int64_t t = 0; t < s_.tokens; ++t) {
      bounds[static_cast<size_t>(2 * t + 1)] = static_cast<int32_t>(s_.tokens);
    }
    return device_.Upload(*kernels_, At(3 * operand_bytes_), bounds.data(),
                          2 * s_.tokens * int64_t{sizeof(int32_t)});
  }

  absl::StatusOr<double> MatMulRate(DType dtype) {
    MatMulArgs args;
    args.m = s_.tokens;
    args.n = s_.wide;
    args.k = s_.hidden;
    args.dtype = args.out_dtype = dtype;
    args.a = Operand(0);
    args.a_stride = s_.hidden;
    args.b = Operand(1);
    args.b_stride = s_.hidden;
    args.transpose_b = true;  // as weights lie
    args.out = Operand(2);
    args.out_stride = s_.wide;
    const double flops =
        2.0 * static_cast<double>(s_.tokens) * static_cast<double>(s_.wide * s_.hidden);
    const auto product = [&] { return device_.kernels().MatMul(*kernels_, args); };
    MT_ASSIGN_OR_RETURN(const double fastest, Rate(*kernels_, flops, product));
    if (s_.product_seconds == 0) return fastest;
    return KeptUpRate(*kernels_, flops, fastest, product);
  }

  // One document of all tokens: q, k and v in one operand, out and the gradient by it in the next,
  // lse and the gradients by q, k and v in the third.
  AttentionArgs Attention(DType dtype) {
    char* const block = static_cast<char*>(Operand(0));
    const int64_t bytes = s_.tokens * s_.hidden * DTypeBytes(dtype);
    AttentionArgs args;
    args.dtype = dtype;
    args.tokens = s_.tokens;
    args.heads = args.kv_heads = s_.hidden / s_.head_dim;
    args.head_dim = args.value_dim = s_.head_dim;
    args.scale = 0.125f;
    args.document_starts = documents_.data();
    args.documents = 1;
    args.document_bounds = static_cast<const int32_t*>(At(3 * operand_bytes_));
    args.q = block;
    args.k = block + bytes;
    args.v = block + 2 * bytes;
    args.q_stride = args.k_stride = args.v_stride = s_.hidden;
    args.out = Operand(1);
    args.lse = static_cast<float*>(Operand(2));
    return args;
  }
  // The operations of a product over half of the pairs of tokens.
  double PairProductFlops() const {
    const double tokens = static_cast<double>(s_.tokens);
    return 2.0 * tokens * tokens / 2 * static_cast<double>(s_.hidden);
  }

  absl::StatusOr<double> AttentionRate(DType dtype) {
    const AttentionArgs args = Attention(dtype);
    return Rate(*kernels_, 2 * PairProductFlops(),
                [&] { return device_.kernels().Attention(*kernels_, args); });
  }

  // REQUIRES: AttentionRate was called, because its outputs are read.
  absl::StatusOr<double> AttentionBackwardRate(DType dtype) {
    const int64_t bytes = s_.tokens * s_.hidden * DTypeBytes(dtype);
    AttentionBackwardArgs args;
    args.forward = Attention(dtype);
    args.dout = static_cast<char*>(Operand(1)) + bytes;
    char* const gradients = static_cast<char*>(Operand(2)) +
                            Aligned(args.forward.heads * s_.tokens * int64_t{sizeof(float)});
    args.dq = gradients;
    args.dk = gradients + bytes;
    args.dv = gradients + 2 * bytes;
    args.dq_stride = args.dk_stride = args.dv_stride = s_.hidden;
    args.workspace = At(workspace_offset_);
    args.workspace_bytes = WorkspaceBytes(dtype);
    return Rate(*kernels_, 5 * PairProductFlops(),
                [&] { return device_.kernels().AttentionBackward(*kernels_, args); });
  }

  int64_t WorkspaceBytes(DType dtype) const {
    return device_.kernels().AttentionBackwardWorkspaceBytes({.dtype = dtype,
                                                              .tokens = s_.tokens,
                                                              .sequence = s_.tokens,
                                                              .heads = s_.hidden / s_.head_dim,
                                                              .kv_heads = s_.hidden / s_.head_dim,
                                                              .head_dim = s_.head_dim,
                                                              .value_dim = s_.head_dim});
  }

  absl::StatusOr<double> ElementRate(DType dtype) {
    GluArgs args;
    args.dtype = dtype;
    args.tokens = s_.tokens;
    args.width = s_.wide;
    args.gate_up = Operand(0);
    args.out = Operand(1);
    return Rate(*kernels_, 3.0 * static_cast<double>(s_.tokens * s_.wide * DTypeBytes(dtype)),
                [&] { return device_.kernels().Glu(*kernels_, args); });
  }

  // On the host: the fastest of a few updates, after those that tune it.
  double UpdateRate(DType dtype) {
    // The first one finds code and memory cold. A tile that is too small to tell is not tuned on.
    Update(dtype);
    const AdamWUpdater& updater = *session_.first().updater;
    for (int i = 0; i < kTuningUpdatesMax && !updater.tuned(dtype); ++i) Update(dtype);
    double best = 0;
    for (int i = 0; i < s_.repetitions; ++i) {
      const Clock::time_point start = Clock::now();
      Update(dtype);
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      best = std::max(
          best, static_cast<double>(s_.state_elements) * kUpdateBytes / std::max(seconds, 1e-9));
    }
    return best;
  }

  void Update(DType dtype) {
    TileLayout layout;
    layout.elements = layout.parameters = s_.state_elements;
    TensorSpec tensor;
    tensor.shape = {s_.state_elements};
    tensor.elements = s_.state_elements;
    layout.tensors = {tensor};
    AdamWStep step;
    step.learning_rate = 1e-3;
    session_.first().updater->Update(step, gradient_.data(), DType::kF32,
                                     MakeTile(&layout, dtype, state_.data()),
                                     {ElementRange{0, layout.elements}}, pool_->nodes());
  }

  absl::Status CopyToDevice() {
    return device_.CopyToDevice(*to_device_, At(copies_offset_), copied_.data(), s_.copy_bytes);
  }
  absl::Status CopyToHost() {
    return device_.CopyToHost(*to_host_, static_cast<char*>(copied_.data()) + s_.copy_bytes,
                              At(copies_offset_ + Aligned(s_.copy_bytes)), s_.copy_bytes);
  }

  void* At(int64_t offset) { return static_cast<char*>(device_memory_->data()) + offset; }
  void* Operand(int index) { return At(index * operand_bytes_); }

  absl::StatusOr<Span> MakeSpan() {
    Span span;
    MT_ASSIGN_OR_RETURN(span.start, device_.CreateEvent());
    MT_ASSIGN_OR_RETURN(span.end, device_.CreateEvent());
    return span;
  }

  // At least a nanosecond. Waits for its end.
  absl::StatusOr<double> SecondsOf(const Span& span) {
    MT_RETURN_IF_ERROR(device_.Synchronize(*span.end));
    MT_ASSIGN_OR_RETURN(const double seconds, device_.ElapsedSeconds(*span.start, *span.end));
    return std::max(seconds, 1e-9);
  }

  // Returns the rate of the fastest of a few calls, after one that finds code and memory cold. They
  // are queued without a pause, so that a device's own clock measures the work alone.
  absl::StatusOr<double> Rate(Stream& stream, double amount, Work work) {
    std::vector<Span> spans(static_cast<size_t>(s_.repetitions) + 1);
    for (Span& span : spans) {
      MT_ASSIGN_OR_RETURN(span, MakeSpan());
      MT_RETURN_IF_ERROR(device_.Record(stream, *span.start));
      MT_RETURN_IF_ERROR(work());
      MT_RETURN_IF_ERROR(device_.Record(stream, *span.end));
    }
    double best = 0;
    for (size_t i = 1; i < spans.size(); ++i) {
      MT_ASSIGN_OR_RETURN(const double seconds, SecondsOf(spans[i]));
      best = std::max(best, amount / seconds);
    }
    return best;
  }

  // Returns the rate of calls that go on for product_seconds, in the second half of that time.
  // `fastest` is the rate of a few of them. They are queued ahead of the device, which has no
  // pause.
  absl::StatusOr<double> KeptUpRate(Stream& stream, double amount, double fastest, Work work) {
    const auto calls =
        static_cast<int64_t>(std::ceil(s_.product_seconds / 2 * fastest / amount)) + 1;
    MT_ASSIGN_OR_RETURN(const Span second_half, MakeSpan());
    for (Event* half : {second_half.start.get(), second_half.end.get()}) {
      for (int64_t i = 0; i < calls; ++i) MT_RETURN_IF_ERROR(work());
      MT_RETURN_IF_ERROR(device_.Record(stream, *half));
    }
    MT_ASSIGN_OR_RETURN(const double seconds, SecondsOf(second_half));
    return static_cast<double>(calls) * amount / seconds;
  }

  const Session& session_;
  const MeasurementSizes s_;
  Device& device_;
  const bool device_is_host_;
  std::unique_ptr<HostPool> pool_;
  bool pinned_ = false;
  // They go back before the pool ends. Copies have memory of their own, from and to, because
  // updates go on beside them.
  HostLease state_, gradient_, copied_;
  std::unique_ptr<DeviceMemory> device_memory_;
  int64_t operand_bytes_ = 0, copies_offset_ = 0, workspace_offset_ = 0;
  std::vector<int32_t> documents_;
  std::unique_ptr<Stream> kernels_, to_device_, to_host_;
};

absl::StatusOr<HardwareRates> MeasureOnce(Bench& bench) {
  HardwareRates rates;
  MT_RETURN_IF_ERROR(bench.CopyRates(&rates));
  MT_RETURN_IF_ERROR(bench.LaunchRate(&rates));
  MT_ASSIGN_OR_RETURN(rates.fp32, bench.Measure(DType::kF32));
  MT_RETURN_IF_ERROR(bench.HostMemoryRate(&rates));
  // The same memory's bits, read as BF16, are small numbers too.
  MT_ASSIGN_OR_RETURN(rates.bf16, bench.Measure(DType::kBF16));
  return rates;
}

}  // namespace

absl::StatusOr<HardwareRates> MeasureHardware(const Session& session,
                                              const MeasurementSizes& sizes) {
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Bench> bench, Bench::Create(session, sizes));
  HardwareRates rates;
  for (int round = 0; round < sizes.rounds; ++round) {
    MT_ASSIGN_OR_RETURN(const HardwareRates once, MeasureOnce(*bench));
    MergeFaster(once, &rates);
  }
  rates.threads = session.settings.threads;
  rates.device_is_host = session.settings.device == kCpuDeviceId;
  return rates;
}

}  // namespace megatrain
