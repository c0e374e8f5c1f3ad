// What the ranks of a run work with: their devices, and what they exchange data by.
#ifndef MEGATRAIN_ENGINE_RUN_START_RANK_PARTS_H_
#define MEGATRAIN_ENGINE_RUN_START_RANK_PARTS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/comm/nccl_api.h"
#include "engine/host/session.h"
#include "engine/plan/memory_plan.h"
#include "engine/run/start/run_context.h"
#include "engine/trainer/trainer.h"

namespace megatrain {

// Returns an NCCL for each rank of this process. It is empty where ranks do not exchange by NCCL:
// on the cpu device, and for a rank alone. Returns the errors of EngineHost::LoadNccl.
absl::StatusOr<std::vector<std::unique_ptr<NcclApi>>> LoadNcclForRanks(const RunContext& run,
                                                                       const Session& session);

// Returns the parts of this process's ranks. `nccl`, which LoadNcclForRanks has returned, `session`
// and the run's processes must outlive them. All processes of a job call this, after they have the
// same plan. Returns ResourceExhausted if a GPU's memory is not there, and the errors of
// CreateNcclCommunicator.
absl::StatusOr<std::vector<RankParts>> MakeRankParts(
    const RunContext& run, const Session& session, const MemoryPlan& plan,
    const std::vector<std::unique_ptr<NcclApi>>& nccl);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_RUN_START_RANK_PARTS_H_
