// RankParts has a rank's device, its AdamW, and its communicators with other ranks.
#ifndef MEGATRAIN_ENGINE_TRAINER_RANK_PARTS_H_
#define MEGATRAIN_ENGINE_TRAINER_RANK_PARTS_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"
#include "engine/comm/nccl_api.h"
#include "engine/device/device.h"
#include "engine/host/engine_host.h"
#include "engine/host/session.h"
#include "engine/optim/adamw_updater.h"
#include "engine/plan/memory_plan.h"

namespace megatrain {

// The objects of a rank. What the pointers point to must outlive the rank.
struct RankParts {
  Device* device = nullptr;
  AdamWUpdater* updater = nullptr;
  // Device memory that `communicators.tiles` uses, if it needs some. Like the communicator it is
  // held as long as the rank, also while the run is paused.
  std::unique_ptr<DeviceMemory> exchange_memory;
  // `tiles`, `values` and group_ranks; empty for a rank alone.
  CommunicatorSet communicators;
  // The communicator of the processes' training threads; null for a process alone.
  Communicator* control = nullptr;

  // Ends the operations between ranks, on all of them, with `cause`. Does nothing for a rank alone.
  void Abort(const absl::Status& cause) const;
};

// Returns an NcclApi for each rank of this process. The list is empty where ranks do not exchange
// by NCCL: on the cpu device, and for a rank alone. `processes` are the communicators of this
// process in a job of several, null for a process alone. Returns the errors of
// EngineHost::LoadNccl.
absl::StatusOr<std::vector<std::unique_ptr<NcclApi>>> LoadNcclForRanks(
    const EngineHost& host, const Session& session, const CommunicatorSet* processes);

// Returns the parts of this process's ranks. `processes`, null for a process alone, gives up its
// communicators `tiles` and `values` to them. `nccl`, which LoadNcclForRanks has returned,
// `session` and `processes` must outlive the parts. All processes of a job call this, after they
// have made the same plan; with NCCL it waits up to five minutes for the other ranks. Returns
// ResourceExhausted if a GPU lacks the memory for the exchange, other errors of the device, and
// those of CreateNcclCommunicator. REQUIRES: with `processes` the session has one rank.
absl::StatusOr<std::vector<RankParts>> MakeRankParts(
    const Session& session, const MemoryPlan& plan,
    const std::vector<std::unique_ptr<NcclApi>>& nccl, CommunicatorSet* processes);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TRAINER_RANK_PARTS_H_
