#include "engine/host/measure_exchange.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/comm/nccl_communicator.h"
#include "engine/comm/thread_communicator.h"

namespace megatrain {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(1);
constexpr int kRepetitions = 4;  // of which the fastest counts, after one that finds all cold

// Returns the rate at which this rank receives.
absl::StatusOr<double> Gather(Communicator& communicator, Device& device, void* data,
                              int64_t bytes) {
  const int ranks = communicator.ranks();
  std::vector<int64_t> cuts;
  for (int rank = 0; rank <= ranks; ++rank) cuts.push_back(bytes / ranks * rank);
  const double received = static_cast<double>(cuts.back() - cuts[1]);
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device.CreateStream(StreamUse::kCopy));
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Event> start, device.CreateEvent());
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Event> end, device.CreateEvent());
  double best = 0;
  for (int i = 0; i <= kRepetitions; ++i) {
    // The clock must not run while others are late.
    MT_RETURN_IF_ERROR(communicator.Barrier());
    MT_RETURN_IF_ERROR(device.Record(*stream, *start));
    MT_RETURN_IF_ERROR(communicator.AllGather(*stream, data, cuts));
    MT_RETURN_IF_ERROR(device.Record(*stream, *end));
    MT_RETURN_IF_ERROR(device.Synchronize(*end));
    MT_ASSIGN_OR_RETURN(const double seconds, device.ElapsedSeconds(*start, *end));
    if (i > 0) best = std::max(best, received / std::max(seconds, 1e-9));
  }
  // An operation that was ended seems to be done.
  MT_RETURN_IF_ERROR(communicator.status());
  return best;
}

// Returns the least value of any rank, to all of them.
absl::StatusOr<double> LeastOfRanks(Communicator& communicator, double value) {
  MT_ASSIGN_OR_RETURN(const std::vector<double> all, communicator.GatherValues({value}));
  return *std::min_element(all.begin(), all.end());
}

}  // namespace

absl::StatusOr<double> MeasureExchange(Device* device, NcclApi* nccl,
                                       const std::shared_ptr<Communicator>& bootstrap,
                                       int64_t bytes) {
  const int64_t scratch_bytes = NcclScratchBytes(bootstrap->ranks());
  // The memory must outlive the communicator, which waits for its operations.
  absl::StatusOr<std::unique_ptr<DeviceMemory>> data = device->Allocate(bytes),
                                                scratch = device->Allocate(scratch_bytes);
  const bool enough = data.ok() && scratch.ok();
  // Before NCCL starts, which would wait for a rank without memory.
  MT_ASSIGN_OR_RETURN(const double all_have_enough, LeastOfRanks(*bootstrap, enough ? 1 : 0));
  if (all_have_enough == 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a GPU has not ", FormatBytes(bytes + scratch_bytes),
                     " of memory to measure the exchange between GPUs"));
  }
  MT_ASSIGN_OR_RETURN(
      const std::unique_ptr<Communicator> communicator,
      CreateNcclCommunicator(bootstrap, nccl, device, (*scratch)->data(), scratch_bytes,
                             {.meeting = kPatience, .operation = kPatience}));
  absl::StatusOr<double> rate = Gather(*communicator, *device, (*data)->data(), bytes);
  // The others would wait for one that has failed.
  if (!rate.ok()) communicator->Abort(rate.status());
  if (rate.ok()) rate = LeastOfRanks(*communicator, *rate);
  return rate;
}

absl::StatusOr<double> MeasureExchange(const std::vector<std::shared_ptr<Device>>& gpus,
                                       const NcclLoader& load_nccl, int64_t bytes) {
  std::vector<std::unique_ptr<NcclApi>> nccl(gpus.size());
  for (std::unique_ptr<NcclApi>& api : nccl) {
    MT_ASSIGN_OR_RETURN(api, load_nccl());
  }
  std::vector<CommunicatorSet> communicators =
      CreateThreadCommunicators(static_cast<int>(gpus.size()), kPatience);
  std::vector<absl::StatusOr<double>> rates(gpus.size(), 0.0);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < gpus.size(); ++i) {
    threads.emplace_back([&, i] {
      rates[i] =
          MeasureExchange(gpus[i].get(), nccl[i].get(), std::move(communicators[i].tiles), bytes);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::StatusOr<double>& rate : rates) MT_RETURN_IF_ERROR(rate.status());
  return rates.front();
}

}  // namespace megatrain
