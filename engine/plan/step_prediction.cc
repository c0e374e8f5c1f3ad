#include "engine/plan/step_prediction.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <vector>

#include "engine/pipeline/schedule/schedule.h"
#include "engine/plan/simulated_executor.h"

namespace megatrain {
namespace {

// A schedule has a few operations for each layer and micro-batch. Beyond this many pairs in the
// sweeps that are run neighbouring micro-batches are taken as one, so that a prediction is a matter
// of a few milliseconds, and a choice between dozens of plans one of tenths of a second.
constexpr int kPairsMax = 640;
// Pieces of all tiles' updates on the device, for the same reason; those of models up to 8 billion
// parameters are the real ones.
constexpr int64_t kDevicePiecesMax = 4096;
// Sweeps beyond these take as long as the last of them: in between, one is like the other.
constexpr int kSweepsMax = 3;
// Steps that are run until the next one is like the one before.
constexpr int kSteps = 3;

LaneSeconds ToLaneSeconds(const std::array<double, kLanes>& busy) {
  return {.h2d = busy[static_cast<int>(Lane::kH2D)],
          .compute = busy[static_cast<int>(Lane::kCompute)],
          .d2h = busy[static_cast<int>(Lane::kD2H)],
          .update = busy[static_cast<int>(Lane::kUpdate)],
          .io = busy[static_cast<int>(Lane::kIo)],
          .collective = busy[static_cast<int>(Lane::kCollective)]};
}

// The tokens of `micro_batches` micro-batches in sweeps of shape->sweep_micro_batches. If those are
// more than `parts`, neighbours of a sweep are taken as one, so that a sweep has `parts` of them.
std::vector<int64_t> SweepTokens(int micro_batches, int64_t micro_batch_tokens, int parts,
                                 PipelineShape* shape) {
  const int sweep = shape->sweep_micro_batches;
  parts = std::min(parts, sweep);
  std::vector<int64_t> tokens;
  for (int first = 0; first < micro_batches; first += sweep) {
    const int64_t size = std::min(sweep, micro_batches - first);
    // The last sweep may be smaller.
    const int64_t n = (size * parts + sweep - 1) / sweep;
    for (int64_t i = 0; i < n; ++i) {
      tokens.push_back((size * (i + 1) / n - size * i / n) * micro_batch_tokens);
    }
  }
  shape->sweep_micro_batches = parts;
  // The same part of the pairs is kept.
  for (int* kept : {&shape->kept, &shape->kept_everything}) {
    *kept = static_cast<int>(*kept * int64_t{parts} / sweep);
  }
  return tokens;
}

struct Timed {
  double seconds = 0;
  // Bytes that cross the link count for the link's lanes, whichever lane moves them.
  std::array<double, kLanes> busy = {};
};

// A step in the steady state.
Timed RunSteps(const PipelineShape& shape, const std::vector<int64_t>& tokens,
               const LaneRates& lane_rates) {
  PipelineState state;
  Schedule steps;
  std::array<size_t, kSteps> ends;  // of the steps' operations
  for (size_t& end : ends) {
    Schedule step = BuildTrainingStep(shape, tokens, state);
    std::move(step.ops.begin(), step.ops.end(), std::back_inserter(steps.ops));
    end = steps.ops.size();
  }
  const SimulatedExecutor::Run run = SimulatedExecutor(lane_rates).Submit(steps);
  // The time from one end of backward to the next. Updates after the last one delay nothing.
  const auto compute_end = [&](int step) {
    size_t i = ends[step] - 1;
    while (steps.ops[i].lane != Lane::kCompute) --i;
    return run.spans[i].end_seconds;
  };
  Timed step;
  step.seconds = compute_end(kSteps - 1) - compute_end(kSteps - 2);
  const size_t before = ends[kSteps - 2], end = ends[kSteps - 1];
  for (size_t i = before; i < end; ++i) {
    const Op& op = steps.ops[i];
    const auto busy = [&step](Lane lane) -> double& { return step.busy[static_cast<int>(lane)]; };
    busy(Lane::kH2D) += static_cast<double>(op.h2d_bytes) / lane_rates.h2d_bytes_per_second;
    busy(Lane::kD2H) += static_cast<double>(op.d2h_bytes) / lane_rates.d2h_bytes_per_second;
    if (op.lane == Lane::kCompute) {
      busy(op.lane) += WorkSeconds(op.work, lane_rates);
    } else {
      busy(op.lane) += OpSeconds(op, lane_rates);
    }
  }
  return step;
}

struct Threads {
  int compute, update;
};

Threads ThreadsOf(const StepResources& r) {
  if (r.update_threads == 0) return {r.threads, r.threads};
  return {r.threads - r.update_threads, r.update_threads};
}

// Sets the rates at which a rank receives what an operation on the lane collective brings it: a
// part from each other rank.
void SetExchange(const PipelineDimensions& d, const HardwareRates& rates, LaneRates& lane_rates) {
  const double within = rates.collective_bytes_per_second > 0 ? rates.collective_bytes_per_second
                                                              : lane_rates.h2d_bytes_per_second;
  const double parts = std::max(1, d.shape.ranks - 1);
  double direct_seconds = 1 / within, ring_seconds = 1 / within;  // a byte that a rank receives
  if (rates.network_bytes_per_second > 0 && d.processes > 1) {
    // A rank gets parts from the other machines' groups (RankGrid), and all other parts within its
    // machine. The levels work at the same time. A machine's ranks share its ports.
    // A group is the largest power of two in a machine's ranks (GroupRanks).
    const int groups = d.local_ranks() >> std::countr_zero(static_cast<unsigned>(d.local_ranks()));
    const double outside = groups * (d.processes - 1);
    const double port = outside * d.local_ranks() / rates.network_bytes_per_second;
    direct_seconds = std::max((parts - outside) / within, port) / parts;
    // NCCL gathers in a ring, which enters a machine once with all parts but one.
    ring_seconds = std::max(1 / within, 1 / rates.network_bytes_per_second);
  }
  lane_rates.gather_bytes_per_second = 1 / (rates.device_is_host ? direct_seconds : ring_seconds);
  // Sums follow the transfers. They read what came and this rank's own, and write it.
  lane_rates.reduce_bytes_per_second =
      1 / (direct_seconds + 3 / lane_rates.device_bytes_per_second);
}

}  // namespace

LaneRates LaneRatesOf(const PipelineDimensions& dimensions, const MachineSpeed& machine) {
  const DType dtype = dimensions.dtype;
  const HardwareRates& rates = machine.rates;
  const StepResources& resources = machine.resources;
  const PrecisionRates& precision = dtype == DType::kBF16 ? rates.bf16 : rates.fp32;
  // The share of the measured speed. A job does not have more threads than the host that was
  // measured.
  const auto part = [&rates](int threads) {
    return std::min(1.0, static_cast<double>(threads) / rates.threads);
  };
  const Threads threads = ThreadsOf(resources);
  const double compute_part = rates.device_is_host ? part(threads.compute) : 1;

  LaneRates lane_rates;
  // Both directions are in use for most of a step; where that slows them is not followed through
  // it.
  const auto link = [](double beside, double alone) { return beside > 0 ? beside : alone; };
  lane_rates.h2d_bytes_per_second =
      link(rates.h2d_beside_d2h_bytes_per_second, rates.h2d_bytes_per_second);
  lane_rates.d2h_bytes_per_second =
      link(rates.d2h_beside_h2d_bytes_per_second, rates.d2h_bytes_per_second);
  if (resources.link_bytes_per_second_max > 0) {
    for (double* rate : {&lane_rates.h2d_bytes_per_second, &lane_rates.d2h_bytes_per_second}) {
      *rate = std::min(*rate, resources.link_bytes_per_second_max);
    }
  }
  lane_rates.product_flops_per_second = precision.matmul_flops_per_second * compute_part;
  lane_rates.attention_forward_flops_per_second =
      precision.attention_flops_per_second * compute_part;
  lane_rates.attention_backward_flops_per_second =
      precision.attention_backward_flops_per_second * compute_part;
  lane_rates.device_bytes_per_second = precision.element_bytes_per_second * compute_part;
  lane_rates.launch_seconds = rates.launch_seconds;
  lane_rates.update_bytes_per_second = precision.update_bytes_per_second * part(threads.update);
  // A machine's ranks share its memory. On the cpu device products do too, beyond what is measured.
  if (!rates.device_is_host) {
    lane_rates.host_memory_bytes_per_second =
        rates.host_memory_bytes_per_second / dimensions.local_ranks();
  }
  SetExchange(dimensions, rates, lane_rates);
  lane_rates.disk_bytes_per_second = 1;  // a step writes nothing to disk
  lane_rates.update_shares_compute = rates.device_is_host && resources.update_threads == 0;
  return lane_rates;
}

StepPrediction PredictStep(const PipelineDimensions& d, const MachineSpeed& machine) {
  const HardwareRates& rates = machine.rates;
  const StepResources& resources = machine.resources;
  const LaneRates lane_rates = LaneRatesOf(d, machine);
  PipelineShape shape = d.shape;
  int64_t elements = 0;
  for (int tile = 0; tile < shape.tiles(); ++tile) elements += shape.state_elements(tile);
  shape.device_piece_elements =
      std::max(shape.device_piece_elements,
               elements / kDevicePiecesMax / kUpdateAlignment * kUpdateAlignment);
  const double sweeps_exactly = static_cast<double>(d.micro_batches) / shape.sweep_micro_batches;
  const int sweeps = static_cast<int>(std::ceil(sweeps_exactly));
  const int pairs_max = sweeps > kSweepsMax ? kPairsMax / 2 : kPairsMax;  // run twice
  const int parts = std::max(1, pairs_max / (shape.tiles() * std::min(sweeps, kSweepsMax)));
  const std::vector<int64_t> tokens =
      SweepTokens(d.micro_batches, d.micro_batch_tokens, parts, &shape);
  Timed step;
  if (sweeps <= kSweepsMax) {
    step = RunSteps(shape, tokens, lane_rates);
  } else {
    // Whole sweeps alone; the last one's missing micro-batches count as a part of a sweep.
    const auto first = [&](int n) {
      return std::vector<int64_t>(tokens.begin(), tokens.begin() + n * shape.sweep_micro_batches);
    };
    step = RunSteps(shape, first(kSweepsMax), lane_rates);
    const Timed fewer = RunSteps(shape, first(kSweepsMax - 1), lane_rates);
    const double more = sweeps_exactly - kSweepsMax;
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
    const double copies = busy.h2d * lane_rates.h2d_bytes_per_second / rates.h2d_bytes_per_second +
                          busy.d2h * lane_rates.d2h_bytes_per_second / rates.d2h_bytes_per_second;
    const Threads threads = ThreadsOf(resources);
    const double work = busy.compute * threads.compute + busy.update * threads.update + copies;
    prediction.step_seconds = std::max(prediction.step_seconds, work / resources.threads);
  }
  prediction.tokens_per_second = static_cast<double>(d.step_tokens) / prediction.step_seconds;
  prediction.bound_by = Lane::kCompute;
  for (const Lane lane : {Lane::kH2D, Lane::kD2H, Lane::kUpdate, Lane::kCollective}) {
    if (step.busy[static_cast<int>(lane)] > step.busy[static_cast<int>(prediction.bound_by)]) {
      prediction.bound_by = lane;
    }
  }
  return prediction;
}

}  // namespace megatrain
