// PlanTraining of engine.h.
#include "engine/base/status.h"
#include "engine/engine.h"
#include "engine/memory/system_memory.h"
#include "engine/model/hf_directory.h"
#include "engine/model/model_layout.h"
#include "engine/pipeline/memory_plan.h"
#include "engine/session.h"

namespace megatrain {
namespace {

absl::StatusOr<PlanReport> Plan(const JobSpec& spec, const SessionSettings& settings,
                                const MemoryBudget& budget, FileSystem* files) {
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
  return report;
}

}  // namespace

absl::StatusOr<PlanReport> PlanTraining(const JobSpec& spec) {
  MT_ASSIGN_OR_RETURN(const SessionSettings settings, ChooseSession(spec.engine, "auto", 0));
  MemoryBudget budget;
  MT_ASSIGN_OR_RETURN(budget.host_bytes, AvailableMemoryBytes());
  return Plan(spec, settings, budget, PosixFileSystem());
}

absl::StatusOr<PlanReport> PlanTraining(const JobSpec& spec, const EngineBudget& budget,
                                        FileSystem* files) {
  MT_ASSIGN_OR_RETURN(const SessionSettings settings,
                      ChooseSession(spec.engine, budget.device, budget.threads));
  MemoryBudget memory;
  memory.pool_bytes = budget.pool_bytes;
  memory.host_bytes = budget.pool_bytes + budget.beside_pool_bytes;
  return Plan(spec, settings, memory, files);
}

}  // namespace megatrain
