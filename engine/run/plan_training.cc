// PlanTraining of engine.h.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/device/cpu/cpu_kernels.h"
#include "engine/device/cuda/cuda_kernel_sizes.h"
#include "engine/device/cuda/device_reserve.h"
#include "engine/engine.h"
#include "engine/hf/config_json.h"
#include "engine/hf/weight_files.h"
#include "engine/host/session.h"
#include "engine/memory/host_offer.h"
#include "engine/model/model_layout.h"
#include "engine/plan/memory_plan.h"
#include "engine/plan/step_prediction.h"
#include "engine/plan/trained_tensors.h"
#include "engine/run/start/machine_speed.h"

namespace megatrain {
namespace {

PlanChoice ToChoice(const PipelineShape& shape, const std::optional<StepPrediction>& predicted) {
  PlanChoice choice;
  choice.micro_batches_per_sweep = shape.sweep_micro_batches;
  choice.stash_on_host = shape.stash_on_host;
  choice.weight_buffers = shape.weight_buffers;
  choice.device_update_share = static_cast<double>(shape.device_update_parts) / kUpdateParts;
  choice.first_layer_device_update_share =
      static_cast<double>(shape.device_parts(1)) / kUpdateParts;
  choice.activations_kept_whole = shape.kept_everything;
  choice.activations_kept_partly = shape.kept - shape.kept_everything;
  if (shape.ranks > 1) choice.loads = shape.whole_loads ? "whole" : "shards";
  if (predicted.has_value()) {
    choice.predicted = {predicted->step_seconds, predicted->tokens_per_second,
                        predicted->lane_busy_seconds, LaneName(predicted->bound_by)};
  }
  return choice;
}

std::optional<PlanChoice> ToChoice(const std::optional<MemoryPlan::Timed>& other) {
  if (!other.has_value()) return std::nullopt;
  return ToChoice(other->shape, other->predicted);
}

std::vector<PlanReport::Item> ToItems(const std::vector<MemoryPlan::Item>& items) {
  std::vector<PlanReport::Item> report;
  for (const MemoryPlan::Item& item : items) report.push_back({item.name, item.bytes});
  return report;
}

// A choice, for people.
std::string ChoiceText(const PipelineShape& shape) {
  const auto percent = [](int parts) { return 100 * parts / kUpdateParts; };
  std::string place = "on the host";
  if (shape.updates_on_device()) {
    place = absl::StrFormat("on the device for %d%% (first layer: %d%%)",
                            percent(shape.device_update_parts), percent(shape.device_parts(1)));
  }
  return absl::StrFormat("%d micro-batches a sweep, stash on the %s, %d weight buffers, AdamW %s%s",
                         shape.sweep_micro_batches, shape.stash_on_host ? "host" : "device",
                         shape.weight_buffers, place,
                         shape.ranks == 1    ? ""
                         : shape.whole_loads ? ", loads of whole tiles"
                                             : ", loads of shards");
}

// `source`: of the rates.
std::string PredictionText(const MemoryPlan& plan, const std::string& source) {
  const StepPrediction& predicted = *plan.predicted;
  const LaneSeconds& busy = predicted.lane_busy_seconds;
  std::string text = absl::StrFormat(
      "time, estimated from %s\n"
      "  a step %.3g s, %.4g tokens/s; the busiest lane is %s\n"
      "  busy in a step: h2d %.3g s, compute %.3g s, d2h %.3g s, update %.3g s%s\n"
      "  chosen %s: %s\n",
      source, predicted.step_seconds, predicted.tokens_per_second, LaneName(predicted.bound_by),
      busy.h2d, busy.compute, busy.d2h, busy.update,
      plan.dimensions.shape.ranks > 1 ? absl::StrFormat(", collective %.3g s", busy.collective)
                                      : "",
      plan.chosen_by_time ? "by predicted time" : "by rule, nothing else is worth it",
      ChoiceText(plan.dimensions.shape));
  const auto add = [&](const char* name, const std::optional<MemoryPlan::Timed>& other) {
    if (!other.has_value()) return;
    absl::StrAppendFormat(&text, "  %s: %s: a step %.3g s, %+.1f%%\n", name,
                          ChoiceText(other->shape), other->predicted.step_seconds,
                          100 * (other->predicted.step_seconds / predicted.step_seconds - 1));
  };
  add("the runner-up", plan.runner_up);
  add("by rule", plan.by_rule);
  return text;
}

// The sizes of a device's kernels, whether or not the device is here.
std::unique_ptr<KernelSizes> SizesOf(const SessionSettings& settings) {
  if (settings.device != kCpuDeviceId) return std::make_unique<CudaKernelSizes>();
  return std::make_unique<CpuKernelSizes>(settings.rank_threads() - settings.rank_update_threads());
}

// `source`: of the rates, for people.
absl::StatusOr<PlanReport> Plan(const JobSpec& given, const SessionSettings& settings,
                                const MemoryBudget& budget, const HardwareRates& rates,
                                FileSystem* files,
                                const std::string& source = "this machine's measured rates",
                                int nodes = 1) {
  JobSpec spec = given;
  spec.engine.devices = settings.devices;
  MT_ASSIGN_OR_RETURN(const ModelDescription config, ReadModelDescription(spec.model.path, files));
  MT_ASSIGN_OR_RETURN(const ModelLayout layout, BuildTrainingLayout(config, spec));
  const std::unique_ptr<KernelSizes> sizes = SizesOf(settings);
  MT_ASSIGN_OR_RETURN(const MemoryPlan plan,
                      PlanMemory(spec, layout, *sizes, budget, SpeedOf(settings, rates),
                                 {.count = nodes, .number = 0}));
  PlanReport report;
  report.fits = plan.fits;
  report.misfit = plan.misfit;
  report.table = plan.Table();
  if (spec.training.objective == Objective::kDpo) {
    absl::StrAppend(&report.table,
                    "objective: dpo, over pairs of answers; the head's forward pass "
                    "is made twice a step",
                    spec.training.dpo_reference_free
                        ? ""
                        : ", and all answers go forward once before the first step",
                    "\n");
  }
  MT_ASSIGN_OR_RETURN(const std::string ignored,
                      DescribeIgnoredTensors(files, spec.model.path, config));
  if (!ignored.empty()) absl::StrAppend(&report.table, "note: ", ignored, "\n");
  report.model_family = config.family;
  report.parameters = plan.parameters;
  report.host = ToItems(plan.host);
  report.device = ToItems(plan.device);
  report.pool_bytes = plan.pool_bytes;
  report.host_bytes = plan.host_bytes;
  if (plan.host_limit < kUnlimitedBytes) report.host_limit_bytes = plan.host_limit;
  report.device_bytes = plan.device_bytes;
  report.device_limit_bytes = plan.device_limit;
  report.device_reserve_bytes = plan.budget.device_reserve_bytes;
  report.checkpoint_bytes = plan.checkpoint_bytes;
  report.devices = plan.dimensions.shape.ranks;
  report.nodes = nodes;
  report.micro_batches = plan.dimensions.micro_batches;
  report.gradient_slabs = plan.dimensions.shape.gradient_slabs;
  report.choice = ToChoice(plan.dimensions.shape, plan.predicted);
  if (plan.predicted.has_value()) {
    report.table += PredictionText(plan, source);
    report.chosen_by_time = plan.chosen_by_time;
    report.runner_up = ToChoice(plan.runner_up);
    report.by_rule = ToChoice(plan.by_rule);
  }
  return report;
}

// For the source of rates: "; given: dram=80, link=50".
std::string GivenRates(const std::vector<std::string>& rates) {
  return rates.empty() ? "" : absl::StrCat("; given: ", absl::StrJoin(rates, ", "));
}

// For a GPU that is not here, of the memory that the job names.
absl::StatusOr<PlanReport> PlanForAbsent(const JobSpec& spec, const std::string& why, int nodes) {
  // One GPU is like another here; which one the job names matters where it runs.
  JobSpec anywhere = spec;
  anywhere.engine.device = "cuda";
  MT_ASSIGN_OR_RETURN(const SessionSettings settings,
                      ChooseSession(anywhere.engine, {"cuda:0", kUnknownDevices},
                                    /*threads_max=*/0));
  MT_ASSIGN_OR_RETURN(const HostOffer offer, ReadHostOffer());
  MemoryBudget budget;
  budget.SetHost(offer);
  if (spec.engine.host_memory > 0) {  // the memory of that other machine
    budget.pool_bytes = -1;
    budget.host_bytes = kUnlimitedBytes;
  }
  budget.SetDevice(spec.engine.device_memory, kUnknownReserveBytes);
  MT_ASSIGN_OR_RETURN(PlanReport report, Plan(anywhere, settings, budget, HardwareRates(),
                                              PosixFileSystem(), "", nodes));
  absl::StrAppend(&report.table, "planned for a GPU that is not here, of engine.device_memory (",
                  why, ")\n");
  return report;
}

// Tells of `groups`, as HostDevices::ByMemory, on which of them the job fits, and that the report
// is of the first `count` devices there. `fitting`: the number of the first group that the report
// is of; the job does not fit on those before it.
void AddPlaces(const HostDevices& devices, const std::vector<std::vector<int>>& groups, int count,
               PlanReport* report, size_t fitting = 0) {
  if (devices.bytes.empty()) return;
  std::vector<int64_t> bytes;
  for (size_t group = 0; group < groups.size(); ++group) {
    for (const int number : groups[group]) {
      PlanReport::Place& place = report->places.emplace_back();
      place.number = number;
      place.name = devices.Name(number);
      place.bytes = devices.bytes[static_cast<size_t>(number)];
      place.fits = report->fits && group >= fitting;
      place.planned = group >= fitting && count-- > 0;
      bytes.push_back(place.bytes);
    }
  }
  if (!IsUnequal(bytes)) return;
  absl::StrAppend(&report->table, "devices with unequal memory free\n");
  for (const PlanReport::Place& place : report->places) {
    absl::StrAppend(&report->table, "  ", place.name, ": ", FormatBytesShort(place.bytes), ", ",
                    place.fits ? "fits" : "does not fit", place.planned ? ", planned for" : "",
                    "\n");
  }
}

}  // namespace

absl::StatusOr<PlanReport> PlanTraining(const JobSpec& spec, const GpuOpener& open_gpu,
                                        const std::vector<std::string>& given_rates, int nodes,
                                        const NcclLoader& load_nccl) {
  EngineHostOptions options;
  options.device = spec.engine.device;
  options.device_key = "engine.device";
  options.threads = static_cast<int>(spec.engine.threads);
  options.open_gpu = open_gpu;
  // The measured rate holds within a machine. A plan for several machines needs it only if the rate
  // between them is given.
  const bool network_given =
      std::any_of(given_rates.begin(), given_rates.end(),
                  [](const std::string& rate) { return absl::StartsWith(rate, "network="); });
  if (nodes == 1 || network_given) options.load_nccl = load_nccl;
  options.devices = static_cast<int>(spec.engine.devices);
  absl::StatusOr<std::unique_ptr<EngineHost>> host = EngineHost::Create(options);
  if (absl::IsFailedPrecondition(host.status()) && options.devices > 1) {
    // One GPU tells of others of its kind, which need not be here.
    options.devices = 1;
    host = EngineHost::Create(options);
  }
  if (!host.ok()) {
    const bool absent =
        absl::IsFailedPrecondition(host.status()) || absl::IsInvalidArgument(host.status());
    const std::string why(host.status().message());
    if (absent && !given_rates.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--rate: ", given_rates[0],
                       " changes measured rates, and there are none of a GPU that "
                       "is not here (",
                       why, "); take a machine's by --profile NAME"));
    }
    if (absent && spec.engine.device_memory > 0) return PlanForAbsent(spec, why, nodes);
    if (!absent) return host.status();
    return absl::FailedPreconditionError(absl::StrCat(
        why, "; to plan for a GPU that is not here, name its memory: engine.device_memory"));
  }
  HostDevices devices = (*host)->devices();
  const bool all_here = devices.count >= spec.engine.devices;
  MT_ASSIGN_OR_RETURN(
      const SessionSettings settings,
      ChooseSession(spec.engine, all_here ? devices : HostDevices{devices.first, kUnknownDevices},
                    options.threads));
  const std::vector<int> on = all_here ? settings.on : std::vector<int>{0};
  MT_ASSIGN_OR_RETURN(const MemoryBudget budget, (*host)->BudgetNow(on));
  MT_ASSIGN_OR_RETURN(devices.bytes, (*host)->PlannableDeviceBytes(on));
  // A machine that has no memory left for it has none for the job either, and the plan says so.
  (void)(*host)->MeasureRates();
  HardwareRates rates = (*host)->rates();
  const double exchange = rates.collective_bytes_per_second;
  MT_RETURN_IF_ERROR(SetRates(given_rates, &rates));
  const std::string source = absl::StrCat(
      "this machine's measured rates",
      exchange > 0 ? absl::StrFormat(", %.3g GB/s between its GPUs", exchange / 1e9) : "",
      GivenRates(given_rates));
  MT_ASSIGN_OR_RETURN(PlanReport report,
                      Plan(spec, settings, budget, rates, PosixFileSystem(), source, nodes));
  AddPlaces(devices, {on}, settings.devices, &report);
  return report;
}

absl::StatusOr<PlanReport> PlanTraining(const JobSpec& spec, const MachineProfile& profile,
                                        const std::vector<std::string>& given_rates, int nodes) {
  if (spec.engine.device == kCpuDeviceId) {
    return absl::InvalidArgumentError(
        absl::StrCat("engine.device: cpu, and ", profile.name,
                     " is a profile of a GPU; use auto or cuda to plan for it"));
  }
  JobSpec there = spec;
  there.engine.device = "cuda";
  if (there.engine.threads == 0) there.engine.threads = profile.rates.threads;
  HardwareRates rates = profile.rates;
  MT_RETURN_IF_ERROR(SetRates(given_rates, &rates));
  MT_ASSIGN_OR_RETURN(const SessionSettings settings,
                      ChooseSession(there.engine, {"cuda:0", kUnknownDevices},
                                    /*threads_max=*/0));
  MemoryBudget budget;
  // How much memory such a host has is its buyer's choice: engine.host_memory says.
  budget.host_bytes = kUnlimitedBytes;
  budget.SetDevice(profile.device_bytes, kUnknownReserveBytes);
  MT_ASSIGN_OR_RETURN(PlanReport report, Plan(there, settings, budget, rates, PosixFileSystem(),
                                              absl::StrCat("the data sheets of ", profile.name,
                                                           ", not measured: ", profile.description,
                                                           GivenRates(given_rates)),
                                              nodes));
  report.profile = profile.name;
  return report;
}

absl::StatusOr<PlanReport> PlanTraining(const JobSpec& spec, const EngineBudget& budget,
                                        FileSystem* files, const std::vector<int>& on) {
  const HostDevices& devices = budget.devices;
  MT_ASSIGN_OR_RETURN(const SessionSettings settings,
                      ChooseSession(spec.engine, devices, budget.threads, on));
  MT_ASSIGN_OR_RETURN(const DeviceClaim claim,
                      ClaimDevices(spec.engine.device, spec.engine.devices, devices));
  const bool named = !on.empty() || claim.first >= 0;
  const std::vector<std::vector<int>> groups =
      named ? std::vector<std::vector<int>>{settings.on} : devices.ByMemory();
  MemoryBudget memory = budget.memory;
  memory.KeepPart(static_cast<int>(settings.on.size()), devices.count);
  const auto plan_on = [&](size_t group) {
    if (!devices.bytes.empty()) {
      int64_t least = devices.bytes[static_cast<size_t>(groups[group].front())];
      for (const int number : groups[group]) {
        least = std::min(least, devices.bytes[static_cast<size_t>(number)]);
      }
      memory.SetDevice(least);
    }
    return Plan(spec, settings, memory, budget.rates, files);
  };
  // The group with the least memory from which on there are enough devices on which the job fits.
  // What fits in less memory fits in more.
  size_t last = groups.size() - 1, enough = groups[last].size();
  while (last > 0 && enough < settings.on.size()) enough += groups[--last].size();
  size_t first = 0;
  while (first < last) {
    const size_t middle = (first + last) / 2;
    MT_ASSIGN_OR_RETURN(const PlanReport report, plan_on(middle));
    if (report.fits) {
      last = middle;
    } else {
      first = middle + 1;
    }
  }
  MT_ASSIGN_OR_RETURN(PlanReport report, plan_on(first));
  AddPlaces(devices, groups, static_cast<int>(settings.on.size()), &report, first);
  return report;
}

}  // namespace megatrain
