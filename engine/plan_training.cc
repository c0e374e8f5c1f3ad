// PlanTraining of engine.h.
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/engine.h"
#include "engine/measure_hardware.h"
#include "engine/memory/system_memory.h"
#include "engine/model/hf_directory.h"
#include "engine/model/model_layout.h"
#include "engine/pipeline/memory_plan.h"
#include "engine/pipeline/step_prediction.h"
#include "engine/session.h"

namespace megatrain {
namespace {

const char* LaneName(Lane lane) {
  switch (lane) {
    case Lane::kH2D:
      return "h2d";
    case Lane::kCompute:
      return "compute";
    case Lane::kD2H:
      return "d2h";
    case Lane::kUpdate:
      return "update";
    case Lane::kIo:
      return "io";
  }
  return "unknown";
}

PredictedStep Predict(const MemoryPlan& plan, const SessionSettings& settings,
                      const HardwareRates& rates) {
  StepResources resources;
  resources.threads = settings.threads;
  resources.update_threads = settings.update_threads;
  resources.link_bytes_per_second_max = settings.link_gigabytes_per_second * 1e9;
  const StepPrediction prediction = PredictStep(plan, rates, resources);
  return {prediction.step_seconds, prediction.tokens_per_second, prediction.lane_busy_seconds,
          LaneName(prediction.bound_by)};
}

std::string PredictionText(const PredictedStep& predicted) {
  const LaneSeconds& busy = predicted.lane_busy_seconds;
  return absl::StrFormat(
      "time, estimated from this machine's measured rates\n"
      "  a step %.3g s, %.3g tokens/s; the busiest lane is %s\n"
      "  busy in a step: h2d %.3g s, compute %.3g s, d2h %.3g s, update %.3g s\n",
      predicted.step_seconds, predicted.tokens_per_second, predicted.bound_by, busy.h2d,
      busy.compute, busy.d2h, busy.update);
}

// `plan` with the prediction added.
std::string JsonWith(const PredictedStep& predicted, const std::string& plan) {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(plan);
  const LaneSeconds& busy = predicted.lane_busy_seconds;
  json["predicted_step"] = {
      {"step_seconds", predicted.step_seconds},
      {"tokens_per_second", predicted.tokens_per_second},
      {"bound_by", predicted.bound_by},
      {"lane_busy_seconds",
       {{"h2d", busy.h2d}, {"compute", busy.compute}, {"d2h", busy.d2h}, {"update", busy.update}}}};
  return json.dump(2) + "\n";
}

absl::StatusOr<PlanReport> Plan(const JobSpec& spec, const SessionSettings& settings,
                                const MemoryBudget& budget, const HardwareRates& rates,
                                FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(spec.model.path, files));
  const ModelLayout layout = BuildModelLayout(config);
  MT_ASSIGN_OR_RETURN(const std::shared_ptr<const Session> session, OpenSession(settings));
  MT_ASSIGN_OR_RETURN(const MemoryPlan plan,
                      PlanMemory(spec, layout, session->device->kernels(), budget));
  PlanReport report;
  report.fits = plan.fits;
  report.table = plan.Table();
  report.json = plan.Json();
  report.model_family = ModelFamilyName(config.family);
  report.parameters = plan.parameters;
  report.pool_bytes = plan.pool_bytes;
  report.host_bytes = plan.host_bytes;
  report.device_bytes = plan.arena_bytes;
  report.checkpoint_bytes = plan.checkpoint_bytes;
  if (plan.fits && rates.measured()) {
    report.predicted = Predict(plan, settings, rates);
    report.table += PredictionText(report.predicted);
    report.json = JsonWith(report.predicted, report.json);
  }
  return report;
}

}  // namespace

absl::StatusOr<PlanReport> PlanTraining(const JobSpec& spec) {
  MT_ASSIGN_OR_RETURN(const SessionSettings settings, ChooseSession(spec.engine, "auto", 0));
  MemoryBudget budget;
  MT_ASSIGN_OR_RETURN(budget.host_bytes, AvailableMemoryBytes());
  // A machine that has no memory left for it has none for the job either, and the plan says so.
  const absl::StatusOr<HardwareRates> rates = MeasureHardware(settings.threads);
  return Plan(spec, settings, budget, rates.ok() ? *rates : HardwareRates(), PosixFileSystem());
}

absl::StatusOr<PlanReport> PlanTraining(const JobSpec& spec, const EngineBudget& budget,
                                        FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const SessionSettings settings,
                      ChooseSession(spec.engine, budget.device, budget.threads));
  MemoryBudget memory;
  memory.pool_bytes = budget.pool_bytes;
  memory.host_bytes = budget.pool_bytes + budget.beside_pool_bytes;
  return Plan(spec, settings, memory, budget.rates, files);
}

}  // namespace megatrain
