#include "engine/host/measure_exchange.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/time/time.h"
#include "engine/base/status.h"
#include "engine/comm/communicator.h"
#include "engine/comm/nccl_communicator.h"
#include "engine/comm/thread_communicator.h"

namespace megatrain {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(1);
constexpr int kRepetitions = 4;  // of which the fastest counts, after one that finds all cold

// A GPU's part. The memory must outlive the communicator and the stream, which wait for their work.
struct Part {
  Device* device = nullptr;
  std::unique_ptr<NcclApi> nccl;
  std::unique_ptr<Communicator> bootstrap;
  std::unique_ptr<DeviceMemory> data, scratch;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Stream> stream;
};

absl::StatusOr<double> Gather(Part& part, int64_t bytes) {
  const int ranks = part.bootstrap->ranks();
  std::vector<int64_t> cuts;
  for (int rank = 0; rank <= ranks; ++rank) cuts.push_back(bytes / ranks * rank);
  const double received = static_cast<double>(cuts.back() - cuts[1]);
  MT_ASSIGN_OR_RETURN(
      part.communicator,
      CreateNcclCommunicator(std::move(part.bootstrap), part.nccl.get(), part.device,
                             part.scratch->data(), NcclScratchBytes(ranks),
                             {.meeting = kPatience, .operation = kPatience}));
  MT_ASSIGN_OR_RETURN(part.stream, part.device->CreateStream(StreamUse::kCopy));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Event> start, part.device->CreateEvent());
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Event> end, part.device->CreateEvent());
  double best = 0;
  for (int i = 0; i <= kRepetitions; ++i) {
    // The clock must not run while others are late.
    MT_RETURN_IF_ERROR(part.communicator->Barrier());
    MT_RETURN_IF_ERROR(part.device->Record(*part.stream, *start));
    MT_RETURN_IF_ERROR(part.communicator->AllGather(*part.stream, part.data->data(), cuts));
    MT_RETURN_IF_ERROR(part.device->Record(*part.stream, *end));
    MT_RETURN_IF_ERROR(part.device->Synchronize(*end));
    MT_ASSIGN_OR_RETURN(const double seconds, part.device->ElapsedSeconds(*start, *end));
    if (i > 0) best = std::max(best, received / std::max(seconds, 1e-9));
  }
  // An operation that was ended seems to be done.
  MT_RETURN_IF_ERROR(part.communicator->status());
  return best;
}

}  // namespace

absl::StatusOr<double> MeasureExchange(const std::vector<std::shared_ptr<Device>>& gpus,
                                       const NcclLoader& load_nccl, int64_t bytes) {
  const int ranks = static_cast<int>(gpus.size());
  std::vector<Part> parts(gpus.size());
  std::vector<CommunicatorSet> communicators = CreateThreadCommunicators(ranks, kPatience);
  for (size_t i = 0; i < parts.size(); ++i) {
    Part& part = parts[i];
    part.device = gpus[i].get();
    part.bootstrap = std::move(communicators[i].tiles);
    MT_ASSIGN_OR_RETURN(part.nccl, load_nccl());
    MT_ASSIGN_OR_RETURN(part.data, part.device->Allocate(bytes));
    MT_ASSIGN_OR_RETURN(part.scratch, part.device->Allocate(NcclScratchBytes(ranks)));
  }
  std::vector<absl::StatusOr<double>> rates(parts.size(), 0.0);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < parts.size(); ++i) {
    threads.emplace_back([&, i] {
      rates[i] = Gather(parts[i], bytes);
      // Communicators wait for each other when they end, and for those that have failed never.
      if (!rates[i].ok() && parts[i].communicator != nullptr) {
        parts[i].communicator->Abort(rates[i].status());
      }
      parts[i].stream = nullptr;
      parts[i].communicator = nullptr;
    });
  }
  for (std::thread& thread : threads) thread.join();
  double slowest = 0;
  for (const absl::StatusOr<double>& rate : rates) {
    MT_RETURN_IF_ERROR(rate.status());
    slowest = slowest == 0 ? *rate : std::min(slowest, *rate);
  }
  return slowest;
}

}  // namespace megatrain
