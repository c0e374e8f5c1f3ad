#include "engine/trainer/rank_parts.h"

#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/base/status.h"
#include "engine/comm/nccl_communicator.h"
#include "engine/comm/thread_communicator.h"

namespace megatrain {
namespace {

// A rank waits for another as long as that computes or waits for a disk: a thread does not vanish,
// the bootstrap communicator of processes tells when one is gone, and a watchdog of the caller ends
// a run that does not advance.
constexpr absl::Duration kSlowest = absl::InfiniteDuration();
// Nothing computes while NCCL connects the ranks, which takes seconds, on thousands of GPUs about a
// minute. Where a firewall drops what it sends, it tries for ever.
constexpr absl::Duration kMeeting = absl::Minutes(5);

// Replaces the communicator of tiles by one over NCCL, which it then carries.
absl::Status ExchangeByNccl(RankParts& rank, NcclApi* api, int64_t scratch_bytes) {
  std::unique_ptr<Communicator> bootstrap = std::move(rank.communicators.tiles);
  MT_ASSIGN_OR_RETURN(
      rank.communicators.tiles,
      CreateNcclCommunicator(std::move(bootstrap), api, rank.device, rank.exchange_memory->data(),
                             scratch_bytes, {.meeting = kMeeting, .operation = kSlowest},
                             rank.communicators.group_ranks));
  return absl::OkStatus();
}

// Takes the memory, so that a rank without it does not let the others wait.
absl::Status TakeExchangeMemory(std::vector<RankParts>& ranks, int64_t bytes) {
  for (RankParts& rank : ranks) {
    absl::StatusOr<std::unique_ptr<DeviceMemory>> memory = rank.device->Allocate(bytes);
    if (!memory.ok()) {
      rank.Abort(memory.status());
      return memory.status();
    }
    rank.exchange_memory = *std::move(memory);
  }
  return absl::OkStatus();
}

}  // namespace

void RankParts::Abort(const absl::Status& cause) const {
  for (Communicator* const communicator : {communicators.tiles.get(), communicators.values.get()}) {
    if (communicator != nullptr) communicator->Abort(cause);
  }
}

absl::StatusOr<std::vector<std::unique_ptr<NcclApi>>> LoadNcclForRanks(
    const EngineHost& host, const Session& session, const CommunicatorSet* processes) {
  std::vector<std::unique_ptr<NcclApi>> nccl;
  const bool several =
      session.ranks.size() > 1 || (processes != nullptr && processes->control->ranks() > 1);
  if (!several || !session.first().device->kernels().ExchangeByNccl()) return nccl;
  for (size_t i = 0; i < session.ranks.size(); ++i) {
    MT_ASSIGN_OR_RETURN(nccl.emplace_back(), host.LoadNccl());
  }
  return nccl;
}

absl::StatusOr<std::vector<RankParts>> MakeRankParts(
    const Session& session, const MemoryPlan& plan,
    const std::vector<std::unique_ptr<NcclApi>>& nccl, CommunicatorSet* processes) {
  std::vector<RankParts> ranks(session.ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].device = session.ranks[i].device.get();
    ranks[i].updater = session.ranks[i].updater.get();
  }
  if (processes != nullptr) {
    ranks[0].communicators.tiles = std::move(processes->tiles);
    ranks[0].communicators.values = std::move(processes->values);
    ranks[0].communicators.group_ranks = processes->group_ranks;
    ranks[0].control = processes->control.get();
  } else if (ranks.size() > 1) {
    std::vector<CommunicatorSet> communicators =
        CreateThreadCommunicators(session.settings.devices, kSlowest);
    for (size_t i = 0; i < ranks.size(); ++i) ranks[i].communicators = std::move(communicators[i]);
  }
  if (nccl.empty()) return ranks;
  const int64_t bytes = plan.dimensions.exchange_bytes;
  MT_RETURN_IF_ERROR(TakeExchangeMemory(ranks, bytes));
  // At the same time: each waits for all others.
  std::vector<absl::Status> statuses(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i) {
    threads.emplace_back([&, i] { statuses[i] = ExchangeByNccl(ranks[i], nccl[i].get(), bytes); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return ranks;
}

}  // namespace megatrain
