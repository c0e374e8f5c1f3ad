#include "engine/plan/plan_choice.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "engine/plan/device_fit.h"
#include "engine/plan/simulated_executor.h"

namespace megatrain {
namespace {

// A plan by rule is kept unless another is shorter by this part: predictions are not better than
// that, and more sweeps take more host memory. On the cpu device, whose lanes share processors,
// they are less sure.
constexpr double kWorthwhile = 0.01;
constexpr double kWorthwhileOnHost = 0.05;

// Sweep sizes to try: every one of few micro-batches; of many those that make few sweeps,
// sixteenths (a first sweep that hides the updates, and a smaller one), powers of two for devices
// that hold little, and `by_rule`.
std::set<int> SweepSizes(const JobSpec& spec, int sweeps_max, int micro_batches, int by_rule) {
  // Slabs that take turns, as the job has them, hold no partial sums.
  const bool fixed = sweeps_max == 1 || spec.engine.micro_batches_per_sweep > 0 ||
                     (spec.engine.gradient_slabs > 0 && by_rule == micro_batches);
  std::set<int> sizes = {by_rule};
  if (fixed) return sizes;
  if (sweeps_max == 2) {
    sizes.insert({(micro_batches + 1) / 2, micro_batches});
    return sizes;
  }
  constexpr int kParts = 16;
  for (int64_t i = 1; i <= kParts; ++i) {
    const auto at = [&](int64_t size) {
      sizes.insert(static_cast<int>(std::clamp<int64_t>(size, 1, micro_batches)));
    };
    at(i);
    at((micro_batches * i + kParts - 1) / kParts);
    at((micro_batches + i - 1) / i);
    at(int64_t{1} << i);
  }
  return sizes;
}

// Seconds of the compute lane: no step is shorter.
double ComputeSeconds(const PipelineDimensions& d, const LaneRates& lane_rates) {
  const PipelineShape& shape = d.shape;
  const StepWork& work = shape.work;
  const auto seconds = [&](const LayerWork& of) { return WorkSeconds(of, lane_rates); };
  // With frozen tensors some weight gradients are not computed: the least is none.
  const bool frozen = d.layout->trained_parameters < d.layout->parameters;
  const auto least = [&](const LayerWork& whole, const LayerWork& weights) {
    return frozen ? whole + -1 * weights : whole;
  };
  const auto layers = [&](int sweep_size) {
    double sum = 0;
    for (int stage = 0; stage < shape.stage_count(); ++stage) {
      const StageStepWork& of = work.stage(stage);
      const int expert_tiles = shape.stages[static_cast<size_t>(stage)].expert_tiles;
      const bool joins = shape.stages[static_cast<size_t>(stage)].joins;
      const double experts_forward = expert_tiles * seconds(of.experts_forward);
      sum += sweep_size * (seconds(of.forward) + experts_forward + seconds(of.join_forward));
      if (stage < shape.lowest_stage()) continue;
      if (expert_tiles > 0) {
        sum += sweep_size *
               (seconds(least(of.backward, of.weights) +
                        of.recompute[static_cast<size_t>(KeepLevel::kNothing)]) +
                expert_tiles * seconds(least(of.experts_backward, of.experts_weights)) +
                (joins ? experts_forward : 0) + seconds(least(of.join_backward, of.join_weights)));
        continue;
      }
      const LayerWork least_backward = least(of.backward, of.weights);
      const auto backward = [&](KeepLevel level) {
        return seconds(least_backward + of.recompute[static_cast<size_t>(level)]);
      };
      const int before = shape.keeping_stages(stage + 1) * sweep_size;  // pairs of later stages
      const int whole = std::clamp(shape.kept_everything - before, 0, sweep_size);
      const int kept = std::clamp(shape.kept - before, 0, sweep_size);
      sum += whole * backward(KeepLevel::kEverything) +
             (kept - whole) * backward(KeepLevel::kCheapRecomputed) +
             (sweep_size - kept) * backward(KeepLevel::kNothing);
    }
    return sum;
  };
  const int sweeps = d.micro_batches / shape.sweep_micro_batches;
  return sweeps * layers(shape.sweep_micro_batches) +
         layers(d.micro_batches % shape.sweep_micro_batches) +
         d.micro_batches * (seconds(work.embed_forward) +
                            (shape.embedding_trained ? seconds(work.embed_backward) : 0) +
                            seconds(least(work.head, work.head_weights)));
}

// Returns how many of kUpdateParts the device updates in as much time as the host updates the
// others, if the job leaves it open. The state of the device's parts crosses the link both ways.
int BalancedParts(const PipelineDimensions& d, const LaneRates& lane_rates) {
  const double gradient = static_cast<double>(d.shape.gradient_element_bytes);
  const double state = kStateElementBytes;
  const double down = d.shape.clipping ? state + gradient : state;
  const double device =
      std::min(lane_rates.h2d_bytes_per_second / down, lane_rates.d2h_bytes_per_second / state);
  const double host = lane_rates.update_bytes_per_second / (2 * state + gradient);
  return static_cast<int>(kUpdateParts * device / (device + host));
}

struct Candidate {
  PipelineDimensions dimensions;
  double seconds_min = 0;
};

// Returns whether the ranks' loads are to be chosen. Ranks of several processes do not share a
// tile. Nothing is known of a path between devices that was not measured.
bool LoadsAreOpen(const JobSpec& spec, const HardwareRates& rates, const PipelineDimensions& d) {
  return spec.engine.loads == WeightLoads::kAuto && d.shape.ranks > 1 && d.processes == 1 &&
         rates.collective_bytes_per_second > 0;
}

// Returns the candidates that fit the device, by seconds_min.
std::vector<Candidate> Candidates(const JobSpec& spec, const KernelSizes& sizes,
                                  const LaneRates& lane_rates, int64_t device_limit,
                                  const PipelineDimensions& rule, bool loads_are_open) {
  std::vector<int> buffers = {rule.shape.weight_buffers};
  if (spec.engine.weight_buffers == 0) buffers = {kWeightBuffersMin, 3, 4};
  const std::set<int> sweeps =
      SweepSizes(spec, rule.shape.sweeps_max(), rule.micro_batches, rule.shape.sweep_micro_batches);
  std::vector<Candidate> candidates;
  for (const bool on_host : {false, true}) {
    if (spec.engine.stash == (on_host ? StashPlace::kDevice : StashPlace::kHost)) continue;
    for (const int weight_buffers : buffers) {
      for (const int sweep : sweeps) {
        Candidate candidate = {rule};
        PipelineDimensions& d = candidate.dimensions;
        d.shape.weight_buffers = weight_buffers;
        // A larger sweep takes more.
        if (!FitDevice(spec, sizes, device_limit, sweep, on_host, d, &lane_rates)) break;
        candidate.seconds_min = ComputeSeconds(d, lane_rates);
        candidates.push_back(candidate);
        if (!loads_are_open) continue;
        d.shape.whole_loads = !d.shape.whole_loads;  // which takes the same memory
        candidates.push_back(std::move(candidate));
      }
    }
  }
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.seconds_min < b.seconds_min; });
  return candidates;
}

// The parts, of kUpdateParts, that the device updates.
struct UpdateParts {
  int first_tile = 0;  // PipelineShape::first_tile_device_parts
  int others = 0;      // PipelineShape::device_update_parts
  bool operator==(const UpdateParts&) const = default;
};

UpdateParts PartsOf(const PipelineShape& shape) {
  return {shape.first_tile_device_parts, shape.device_update_parts};
}

// Takes so many parts of the updates to the device if the step is shorter then; returns whether it
// is. Device memory is reserved for them in any case.
bool TryParts(UpdateParts parts, const MachineSpeed& machine, MemoryPlan& plan) {
  PipelineDimensions tried = plan.dimensions;
  for (const int n : {parts.first_tile, parts.others}) {
    if (n < 0 || n > kUpdateParts) return false;
  }
  if (parts == PartsOf(tried.shape)) return false;
  tried.shape.first_tile_device_parts = parts.first_tile;
  tried.shape.device_update_parts = parts.others;
  const StepPrediction predicted = PredictStep(tried, machine);
  if (predicted.step_seconds >= plan.predicted->step_seconds) return false;
  plan.dimensions = tried;
  plan.predicted = predicted;
  return true;
}

// Goes on from what is best so far by ever smaller steps: the tiles behind the first, then the
// first.
void RefineParts(const MachineSpeed& machine, MemoryPlan& plan) {
  for (int step = kUpdateParts / 8; step >= 1; step /= 2) {
    for (int UpdateParts::*tiles : {&UpdateParts::others, &UpdateParts::first_tile}) {
      UpdateParts fewer = PartsOf(plan.dimensions.shape), more = fewer;
      fewer.*tiles -= step;
      more.*tiles += step;
      if (!TryParts(fewer, machine, plan)) TryParts(more, machine, plan);
    }
  }
}

// The first tile's share has more than one good place: from the best on, all are tried that are a
// sixteenth apart.
void ChooseParts(const MachineSpeed& machine, MemoryPlan& plan) {
  RefineParts(machine, plan);
  for (int parts = 0; parts <= kUpdateParts; parts += kUpdateParts / 16) {
    TryParts({parts, plan.dimensions.shape.device_update_parts}, machine, plan);
  }
  RefineParts(machine, plan);
}

bool SameChoice(const PipelineShape& a, const PipelineShape& b) {
  return a.sweep_micro_batches == b.sweep_micro_batches && a.stash_on_host == b.stash_on_host &&
         a.weight_buffers == b.weight_buffers && a.kept == b.kept &&
         a.kept_everything == b.kept_everything && PartsOf(a) == PartsOf(b) &&
         a.whole_loads == b.whole_loads;
}

}  // namespace

MemoryPlan ChooseByTime(const JobSpec& spec, const KernelSizes& sizes, const MachineSpeed& machine,
                        int64_t device_limit, const PipelineDimensions& by_rule,
                        absl::FunctionRef<MemoryPlan(const PipelineDimensions&)> finish) {
  MemoryPlan rule = finish(by_rule);
  if (rule.fits) rule.predicted = PredictStep(by_rule, machine);
  const LaneRates lane_rates = LaneRatesOf(by_rule, machine);
  // The cpu device has no link that would be faster than its memory.
  const bool updates_are_open =
      spec.engine.update_device == UpdateDevice::kAuto && !machine.rates.device_is_host;
  const double worthwhile = machine.rates.device_is_host ? kWorthwhileOnHost : kWorthwhile;
  const auto seconds = [&](const MemoryPlan& plan) { return plan.predicted->step_seconds; };

  // The best few. With updates on the device one of them may differ from the rule's by that alone,
  // or not at all.
  constexpr size_t kBest = 3;
  std::vector<MemoryPlan> best;
  for (const Candidate& candidate : Candidates(spec, sizes, lane_rates, device_limit, by_rule,
                                               LoadsAreOpen(spec, machine.rates, by_rule))) {
    if (SameChoice(candidate.dimensions.shape, by_rule.shape) && !updates_are_open) continue;
    // The rest are longer still.
    if (best.size() == kBest && candidate.seconds_min >= seconds(best.back())) break;
    MemoryPlan plan = finish(candidate.dimensions);
    if (!plan.fits) continue;
    plan.predicted = PredictStep(plan.dimensions, machine);
    if (updates_are_open) {
      const int parts = BalancedParts(plan.dimensions, lane_rates);
      TryParts({parts, parts}, machine, plan);
    }
    const auto behind = std::find_if(best.begin(), best.end(), [&](const MemoryPlan& other) {
      return seconds(plan) < seconds(other);
    });
    best.insert(behind, std::move(plan));
    if (best.size() > kBest) best.pop_back();
  }
  if (updates_are_open) {
    for (MemoryPlan& plan : best) ChooseParts(machine, plan);
    std::stable_sort(best.begin(), best.end(), [&](const MemoryPlan& a, const MemoryPlan& b) {
      return seconds(a) < seconds(b);
    });
    std::erase_if(best, [&](const MemoryPlan& plan) {
      return SameChoice(plan.dimensions.shape, by_rule.shape);
    });
  }
  if (best.empty()) return rule;
  const auto timed = [](const MemoryPlan& plan) {
    return MemoryPlan::Timed{plan.dimensions.shape, *plan.predicted};
  };
  if (rule.fits && seconds(best[0]) > (1 - worthwhile) * seconds(rule)) {
    rule.runner_up = timed(best[0]);
    return rule;
  }
  MemoryPlan& chosen = best[0];
  chosen.chosen_by_time = true;
  if (best.size() > 1) chosen.runner_up = timed(best[1]);
  if (rule.fits) {
    chosen.by_rule = timed(rule);
    if (best.size() == 1 || seconds(rule) < seconds(best[1])) chosen.runner_up = chosen.by_rule;
  }
  return std::move(chosen);
}

}  // namespace megatrain
