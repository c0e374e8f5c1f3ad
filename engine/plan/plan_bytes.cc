#include "engine/plan/plan_bytes.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/checkpoint/disk/transfer.h"
#include "engine/comm/mpi/mpi_communicator.h"
#include "engine/generation/generation_batch.h"
#include "engine/pipeline/executor.h"
#include "engine/pipeline/schedule/schedule.h"

namespace megatrain {
namespace {

// The program, its libraries and what malloc holds back, measured on small models.
constexpr int64_t kProgramBytes = int64_t{64} << 20;
// Four arrays of 32 bits (batch.h). Two batches wait, two are in flight, and one is made beside the
// sequences that it is made of.
constexpr int64_t kBatchTokenBytes = 16;
constexpr int64_t kBatchesAtOnce = 6;

// Logits of the tokens of a generation, to choose the next ones from.
int64_t LogitsBytes(const PipelineDimensions& d) {
  if (d.cache_rows == 0) return 0;
  const int64_t tokens = (d.micro_batches + kGenerationTokens - 1) / kGenerationTokens;
  return tokens * kGenerationTokens * d.layout->model.vocabulary * int64_t{sizeof(float)};
}

// RouterTotals and the gradients of the auxiliary loss, of the steps in flight.
int64_t RouterBytes(const PipelineDimensions& d) {
  constexpr int64_t kExpertBytes = 2 * sizeof(double) + sizeof(float);
  return kStepSlots * d.local_ranks() * d.micro_batches * MostExperts(d.layout->model) *
         kExpertBytes;
}

// The batches of the whole step, and the parts of several ranks.
int64_t BatchBytes(const PipelineDimensions& d) {
  const int64_t whole = kBatchesAtOnce * d.shape.ranks;
  const int64_t parts = d.shape.ranks > 1 ? d.local_ranks() : 0;
  return (whole + parts) * d.micro_batches *
         (kBatchTokenBytes * d.micro_batch_tokens + kPairBytes * d.pairs_max());
}

// The blocks through which checkpoints are saved and loaded.
int64_t TransferBytes(const PipelineDimensions& d) { return d.training ? kTransferBytes : 0; }

// The operations of the steps in flight, and of one that is built.
int64_t ScheduleBytes(const PipelineDimensions& d) {
  const std::vector<int64_t> micro_batches(static_cast<size_t>(d.micro_batches),
                                           d.micro_batch_tokens);
  PipelineState state;
  const Schedule schedule = d.training ? BuildTrainingStep(d.shape, micro_batches, state)
                                       : BuildEvaluation(d.shape, micro_batches, state);
  return d.local_ranks() * (kStepSlots + 1) * static_cast<int64_t>(schedule.ops.size()) *
         kQueuedOperationBytes;
}

// The host bytes that communicators of processes take to sum gradients. Those of GPUs take device
// memory.
int64_t ExchangeBytes(const PipelineDimensions& d, const KernelSizes& sizes) {
  return d.processes > 1 && !sizes.ExchangeByNccl() ? MpiScratchBytes(d.shape.ranks) : 0;
}

}  // namespace

int64_t ProcessBytes(const PipelineDimensions& d) {
  return kProgramBytes + LogitsBytes(d) + BatchBytes(d) + TransferBytes(d) + d.whole_tile_bytes +
         RouterBytes(d);
}

void FinishPlan(const KernelSizes& sizes, MemoryPlan& plan) {
  const PipelineDimensions& d = plan.dimensions;
  DeviceArena arena(nullptr, std::numeric_limits<int64_t>::max());
  (void)ReserveDeviceBuffers(d, sizes, arena);
  plan.device.clear();
  for (const DeviceArena::Item& item : arena.items()) {
    auto same = std::find_if(plan.device.begin(), plan.device.end(),
                             [&](const MemoryPlan::Item& i) { return i.name == item.name; });
    if (same == plan.device.end()) {
      plan.device.push_back({item.name, item.bytes});
    } else {
      same->bytes += item.bytes;
    }
  }
  plan.arena_bytes = arena.used();
  plan.device_bytes = plan.arena_bytes + sizes.StreamWorkspaceBytes() + d.exchange_bytes;
  if (sizes.StreamWorkspaceBytes() > 0) {
    plan.device.push_back({"stream workspace", sizes.StreamWorkspaceBytes()});
  }
  if (d.exchange_bytes > 0) plan.device.push_back({"exchange with other GPUs", d.exchange_bytes});
  const auto kinds = HostBufferBytes(d);
  plan.host.clear();
  for (int kind = 0; kind < kHostKinds; ++kind) {
    if (kinds[kind] == 0) continue;
    plan.host.push_back({HostKindName(static_cast<HostKind>(kind)), kinds[kind]});
    plan.pool_bytes += kinds[kind];
  }
  for (const MemoryPlan::Item& item :
       {MemoryPlan::Item{
            "process", kProgramBytes + LogitsBytes(d) + d.local_ranks() * sizes.ScratchBytesMax()},
        MemoryPlan::Item{"batches", BatchBytes(d)}, MemoryPlan::Item{"schedules", ScheduleBytes(d)},
        MemoryPlan::Item{"totals of routers", RouterBytes(d)},
        MemoryPlan::Item{"checkpoint transfers", TransferBytes(d)},
        MemoryPlan::Item{"largest tile, read whole", d.whole_tile_bytes},
        MemoryPlan::Item{"exchange with other processes", ExchangeBytes(d, sizes)}}) {
    if (item.bytes == 0) continue;
    plan.process_bytes += item.bytes;
    plan.host.push_back(item);
  }
  plan.host_bytes = plan.pool_bytes + plan.process_bytes;
  if (plan.budget.device_shares_host) {
    plan.host.push_back({d.local_ranks() == 1 ? "device's memory" : "devices' memory",
                         d.local_ranks() * plan.device_bytes});
    plan.host_bytes += d.local_ranks() * plan.device_bytes;
  }
  plan.checkpoint_bytes = d.layout->model.wrapper.carried_bytes;
  for (const TileLayout& tile : d.layout->tiles) {
    plan.checkpoint_bytes += TileBytes(tile.elements, d.dtype, tile.stateless_elements);
  }
  const int64_t beside_bytes = plan.host_bytes - plan.pool_bytes;
  const int64_t beside_limit =
      plan.budget.host_bytes - std::max<int64_t>(0, plan.budget.pool_bytes);
  if (plan.budget.pool_bytes >= 0 && plan.pool_bytes > plan.budget.pool_bytes) {
    plan.fits = false;
    plan.misfit = absl::StrCat("host pool: needs ", FormatBytes(plan.pool_bytes), ", has ",
                               FormatBytes(plan.budget.pool_bytes));
  } else if (plan.budget.pool_bytes >= 0 && beside_bytes > beside_limit) {
    plan.fits = false;
    plan.misfit = absl::StrCat("host memory beside the pool: needs ", FormatBytes(beside_bytes),
                               ", has ", FormatBytes(beside_limit));
  } else if (plan.host_bytes > plan.host_limit) {
    plan.fits = false;
    plan.misfit = absl::StrCat("host memory: needs ", FormatBytes(plan.host_bytes), ", has ",
                               FormatBytes(plan.host_limit));
  }
  if (plan.device_bytes > plan.device_limit) {
    plan.fits = false;
    if (!plan.misfit.empty()) plan.misfit += "; ";
    absl::StrAppend(&plan.misfit, "device memory: needs ", FormatBytes(plan.device_bytes), ", has ",
                    FormatBytes(plan.device_limit));
  }
}

}  // namespace megatrain
