#include "engine/pipeline/step_prediction.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "engine/pipeline/schedule.h"
#include "engine/pipeline/simulated_executor.h"

namespace megatrain {
namespace {

// A schedule has a few operations for each layer and micro-batch. Beyond this many pairs in a sweep
// neighbouring micro-batches are taken as one, so that a prediction stays a matter of milliseconds.
constexpr int64_t kPairsMax = 4096;
// Sweeps beyond these take as long as the last of them: in between, one is like the other.
constexpr int kSweepsMax = 3;
// Steps that are run until the next one is like the one before.
constexpr int kSteps = 3;

// Seconds a token takes in the forward pass of one layer. Causal attention sees half of the
// sequence on average, as of one document a sequence.
double LayerSeconds(const PipelineDimensions& d, const PrecisionRates& rates) {
  const ModelConfig& c = d.layout->config;
  const double products = 2.0 * static_cast<double>(d.layout->tiles[1].parameters);
  const double width = static_cast<double>(c.heads * c.head_dim);
  const double attention = 2 * 2.0 * width * static_cast<double>(d.sequence_length) / 2;
  // Elements read and written: two norms (2 each), RoPE in place (2 of queries and keys), SwiGLU
  // (3), and the residual stream that the products add to (2).
  const double elements = 2 * 2.0 * static_cast<double>(c.hidden) +
                          2.0 * static_cast<double>((c.heads + c.kv_heads) * c.head_dim) +
                          3.0 * static_cast<double>(c.intermediate) +
                          2.0 * static_cast<double>(c.hidden);
  return products / rates.matmul_flops_per_second + attention / rates.attention_flops_per_second +
         elements * static_cast<double>(DTypeBytes(d.dtype)) / rates.element_bytes_per_second;
}

// The same of the head, a third of what forward and backward take together, as the schedule counts.
double HeadSeconds(const PipelineDimensions& d, const PrecisionRates& rates) {
  const ModelConfig& c = d.layout->config;
  const double vocabulary = static_cast<double>(c.vocabulary);
  const double products = 2.0 * vocabulary * static_cast<double>(c.hidden);
  // The FP32 logits: read for their maximum and sum, read and written as their gradient.
  const double bytes = 3 * 4 * vocabulary;
  return products / rates.matmul_flops_per_second + bytes / rates.element_bytes_per_second / 3;
}

LaneSeconds ToLaneSeconds(const std::array<double, kLanes>& busy) {
  return {.h2d = busy[static_cast<int>(Lane::kH2D)],
          .compute = busy[static_cast<int>(Lane::kCompute)],
          .d2h = busy[static_cast<int>(Lane::kD2H)],
          .update = busy[static_cast<int>(Lane::kUpdate)],
          .io = busy[static_cast<int>(Lane::kIo)]};
}

// Takes `group` micro-batches as one.
void Coarsen(int group, PipelineShape* shape, std::vector<int64_t>* tokens) {
  const auto parts = [group](int n) { return (n + group - 1) / group; };
  std::vector<int64_t> grouped(static_cast<size_t>(parts(static_cast<int>(tokens->size()))));
  for (size_t i = 0; i < tokens->size(); ++i) {
    grouped[i / static_cast<size_t>(group)] += (*tokens)[i];
  }
  *tokens = std::move(grouped);
  const int64_t before = shape->sweep_micro_batches;
  shape->sweep_micro_batches = parts(shape->sweep_micro_batches);
  // The same part of the pairs is kept.
  for (int* kept : {&shape->kept, &shape->kept_everything}) {
    *kept = static_cast<int>(*kept * int64_t{shape->sweep_micro_batches} / before);
  }
}

struct Timed {
  double seconds = 0;
  std::array<double, kLanes> busy = {};
};

// A step in the steady state.
Timed RunSteps(const PipelineShape& shape, const std::vector<int64_t>& tokens,
               const HardwareProfile& profile) {
  SimulatedExecutor executor(profile);
  PipelineState state;
  Timed step;
  double before = 0;
  for (int i = 0; i < kSteps; ++i) {
    const SimulatedExecutor::Run run = executor.Submit(BuildTrainingStep(shape, tokens, state));
    step.seconds = run.end_seconds - before;
    before = run.end_seconds;
    step.busy = run.busy_seconds;
  }
  return step;
}

}  // namespace

StepPrediction PredictStep(const MemoryPlan& plan, const HardwareRates& rates,
                           const StepResources& resources) {
  const PipelineDimensions& d = plan.dimensions;
  const PrecisionRates& precision = d.dtype == DType::kBF16 ? rates.bf16 : rates.fp32;
  const bool shares = resources.update_threads == 0;
  const int update_threads = shares ? resources.threads : resources.update_threads;
  const int compute_threads = shares ? resources.threads : resources.threads - update_threads;
  // Of the measured speed; a job never has more threads than the host it was measured on.
  const auto part = [&rates](int threads) {
    return std::min(1.0, static_cast<double>(threads) / rates.threads);
  };
  const double compute_part = rates.device_is_host ? part(compute_threads) : 1;

  HardwareProfile profile;
  // Both directions are in use for most of a step; where that slows them is not followed through
  // it.
  const auto link = [](double beside, double alone) { return beside > 0 ? beside : alone; };
  profile.h2d_bytes_per_second =
      link(rates.h2d_beside_d2h_bytes_per_second, rates.h2d_bytes_per_second);
  profile.d2h_bytes_per_second =
      link(rates.d2h_beside_h2d_bytes_per_second, rates.d2h_bytes_per_second);
  if (resources.link_bytes_per_second_max > 0) {
    for (double* rate : {&profile.h2d_bytes_per_second, &profile.d2h_bytes_per_second}) {
      *rate = std::min(*rate, resources.link_bytes_per_second_max);
    }
  }
  // The shape's FLOPs stand for seconds.
  profile.flops_per_second = compute_part;
  profile.device_bytes_per_second = precision.element_bytes_per_second * compute_part;
  profile.update_bytes_per_second = precision.update_bytes_per_second * part(update_threads);
  profile.disk_bytes_per_second = 1;  // a step writes nothing to disk
  profile.update_shares_compute = rates.device_is_host && shares;
  PipelineShape shape = d.shape;
  shape.layer_flops_per_token = LayerSeconds(d, precision);
  shape.head_flops_per_token = HeadSeconds(d, precision);
  std::vector<int64_t> tokens(static_cast<size_t>(d.micro_batches), d.micro_batch_tokens);
  const int64_t pairs = int64_t{shape.sweep_micro_batches} * shape.layers;
  if (pairs > kPairsMax) Coarsen(static_cast<int>((pairs - 1) / kPairsMax) + 1, &shape, &tokens);

  const int micro_batches = static_cast<int>(tokens.size());
  const int sweeps = (micro_batches + shape.sweep_micro_batches - 1) / shape.sweep_micro_batches;
  Timed step;
  if (sweeps <= kSweepsMax) {
    step = RunSteps(shape, tokens, profile);
  } else {
    // Whole sweeps alone; the last one's missing micro-batches count as a part of a sweep.
    const auto first = [&](int n) {
      return std::vector<int64_t>(tokens.begin(), tokens.begin() + n * shape.sweep_micro_batches);
    };
    step = RunSteps(shape, first(kSweepsMax), profile);
    const Timed fewer = RunSteps(shape, first(kSweepsMax - 1), profile);
    const double more = static_cast<double>(micro_batches) / shape.sweep_micro_batches - kSweepsMax;
    step.seconds += more * (step.seconds - fewer.seconds);
    for (int lane = 0; lane < kLanes; ++lane) {
      step.busy[lane] += more * (step.busy[lane] - fewer.busy[lane]);
    }
  }

  StepPrediction prediction;
  prediction.lane_busy_seconds = ToLaneSeconds(step.busy);
  const LaneSeconds& busy = prediction.lane_busy_seconds;
  prediction.step_seconds = step.seconds;
  if (rates.device_is_host) {
    // Copies are made by processors that compute and the optimizer then lack; what throttles them
    // beyond that is waiting.
    const double copies = busy.h2d * profile.h2d_bytes_per_second / rates.h2d_bytes_per_second +
                          busy.d2h * profile.d2h_bytes_per_second / rates.d2h_bytes_per_second;
    const double work = busy.compute * compute_threads + busy.update * update_threads + copies;
    prediction.step_seconds = std::max(prediction.step_seconds, work / resources.threads);
  }
  const double step_tokens =
      static_cast<double>(d.micro_batches) * static_cast<double>(d.micro_batch_tokens);
  prediction.tokens_per_second = step_tokens / prediction.step_seconds;
  prediction.bound_by = Lane::kCompute;
  for (const Lane lane : {Lane::kH2D, Lane::kD2H, Lane::kUpdate}) {
    if (step.busy[static_cast<int>(lane)] > step.busy[static_cast<int>(prediction.bound_by)]) {
      prediction.bound_by = lane;
    }
  }
  return prediction;
}

}  // namespace megatrain
