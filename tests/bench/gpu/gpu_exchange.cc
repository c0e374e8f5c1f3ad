#include "tests/bench/gpu/gpu_exchange.h"

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/comm/nccl_communicator.h"
#include "engine/comm/thread_communicator.h"
#include "tests/bench/gpu/gpu_bench_device.h"
#include "tests/engine/comm/nccl_ranks.h"

namespace megatrain {
namespace {

using Queue = GpuBenchDevice::Queue;

constexpr int64_t kHostBytes = int64_t{1} << 20;  // from which the GPUs' memory is filled
constexpr absl::Duration kDeadline = absl::Minutes(1);

// Lets GPUs 0 and 1 reach each other's memory without the host. Returns false if they have no such
// way.
absl::StatusOr<bool> EnablePeerAccess(GpuBenchDevice& device) {
  CudaApi& api = device.api();
  bool direct = true;
  for (const int own : {1, 0}) {  // the last one stays the thread's
    MT_RETURN_IF_ERROR(device.Check(api.SetDevice(own), "cudaSetDevice"));
    const int error = api.EnablePeerAccess(1 - own);
    if (error == kNotTaken) {
      direct = false;
    } else {
      MT_RETURN_IF_ERROR(device.Check(error, "cudaDeviceEnablePeerAccess"));
    }
  }
  return direct;
}

enum class Operation { kAllGather, kReduceScatter };

// Seconds of an operation on `bytes` bytes in `data`, the fastest; the first finds all cold.
absl::StatusOr<double> Seconds(NcclRank& rank, Operation operation, void* data, int64_t bytes,
                               int repetitions) {
  const int ranks = rank.communicator().ranks();
  const int64_t unit = operation == Operation::kAllGather ? 1 : int64_t{sizeof(float)};
  std::vector<int64_t> cuts;
  for (int i = 0; i <= ranks; ++i) cuts.push_back(bytes / unit / ranks * i);
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Event> start, rank.device().CreateEvent());
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<Event> end, rank.device().CreateEvent());
  double best = 0;
  for (int i = 0; i <= repetitions; ++i) {
    // The clock must not run while others are late.
    MT_RETURN_IF_ERROR(rank.communicator().Barrier());
    MT_RETURN_IF_ERROR(rank.device().Record(rank.stream(), *start));
    MT_RETURN_IF_ERROR(
        operation == Operation::kAllGather
            ? rank.communicator().AllGather(rank.stream(), data, cuts)
            : rank.communicator().ReduceScatter(rank.stream(), static_cast<float*>(data), cuts));
    MT_RETURN_IF_ERROR(rank.device().Record(rank.stream(), *end));
    MT_RETURN_IF_ERROR(rank.device().Synchronize(*end));
    MT_ASSIGN_OR_RETURN(double seconds, rank.device().ElapsedSeconds(*start, *end));
    seconds = std::max(seconds, 1e-9);
    if (i > 0) best = best == 0 ? seconds : std::min(best, seconds);
  }
  // An operation that was ended seems to be done.
  MT_RETURN_IF_ERROR(rank.communicator().status());
  return best;
}

}  // namespace

absl::StatusOr<double> MeasurePeerCopies(CudaApi& api, const GpuExchangeSizes& sizes,
                                         BenchResults& results) {
  std::unique_ptr<GpuBenchDevice> devices[2];
  for (const int ordinal : {1, 0}) {
    MT_ASSIGN_OR_RETURN(devices[ordinal],
                        GpuBenchDevice::Open(&api, ordinal,
                                             {.device_bytes = 2 * sizes.copy_bytes,
                                              .host_bytes = kHostBytes,
                                              .flush_bytes = kHostBytes}));
  }
  GpuBenchDevice& own = *devices[0];
  MT_ASSIGN_OR_RETURN(const bool direct, EnablePeerAccess(own));
  const auto copy = [&](Queue queue, int to, int from) {
    return own.Check(api.CopyBetweenDevices(
                         own.queue(queue), devices[to]->memory() + to * sizes.copy_bytes, to,
                         devices[from]->memory() + to * sizes.copy_bytes, from, sizes.copy_bytes),
                     "cudaMemcpyPeerAsync");
  };
  const auto in = [&] { return copy(Queue::kToDevice, 0, 1); };
  const auto out = [&] { return copy(Queue::kToHost, 1, 0); };
  const double bytes = static_cast<double>(sizes.copy_bytes);
  const std::string way = direct ? "direct" : "through the host: the GPUs have no way of their own";
  MT_ASSIGN_OR_RETURN(const double alone, own.Seconds(Queue::kToDevice, sizes.repetitions, in));
  MT_RETURN_IF_ERROR(results.Add("copy from GPU 1 to GPU 0", bytes / alone / 1e9, "GB/s", way));
  MT_ASSIGN_OR_RETURN(
      const GpuBenchDevice::Pair both,
      own.SecondsBeside(Queue::kToDevice, in, Queue::kToHost, out, sizes.repetitions));
  const double slower = bytes / std::max(both.first, both.second);
  MT_RETURN_IF_ERROR(results.Add("copies both ways at once, each", slower / 1e9, "GB/s", way));
  return slower;
}

absl::Status BenchGpuExchange(int count, const GpuOpener& open_gpu, const NcclLoader& load_nccl,
                              double peer_bytes_per_second, const GpuExchangeSizes& sizes,
                              BenchResults& results) {
  std::vector<std::unique_ptr<NcclRank>> ranks;
  std::vector<std::unique_ptr<DeviceMemory>> data;
  const int64_t largest =
      *std::max_element(sizes.exchange_bytes.begin(), sizes.exchange_bytes.end());
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    MT_ASSIGN_OR_RETURN(std::shared_ptr<Device> device, open_gpu(ordinal));
    MT_ASSIGN_OR_RETURN(std::unique_ptr<NcclApi> nccl, load_nccl());
    MT_ASSIGN_OR_RETURN(data.emplace_back(), device->Allocate(largest));
    MT_ASSIGN_OR_RETURN(ranks.emplace_back(), NcclRank::Create(device, std::move(nccl)));
  }
  struct Case {
    Operation operation;
    int64_t bytes;
    std::vector<double> seconds;  // of each rank
  };
  std::vector<Case> cases;
  for (const Operation operation : {Operation::kAllGather, Operation::kReduceScatter}) {
    for (const int64_t bytes : sizes.exchange_bytes) {
      cases.push_back({operation, bytes, std::vector<double>(ranks.size())});
    }
  }
  std::vector<CommunicatorSet> sets = CreateThreadCommunicators(count, kDeadline);
  for (const absl::Status& status : OnEachNcclRank(
           ranks, sets, NcclScratchBytes(count), {kDeadline, kDeadline},
           [&](int rank) -> absl::Status {
             const size_t i = static_cast<size_t>(rank);
             for (Case& c : cases) {
               MT_ASSIGN_OR_RETURN(c.seconds[i], Seconds(*ranks[i], c.operation, data[i]->data(),
                                                         c.bytes, sizes.repetitions));
             }
             return absl::OkStatus();
           })) {
    MT_RETURN_IF_ERROR(status);
  }
  for (const Case& c : cases) {
    const double received = static_cast<double>(c.bytes / count * (count - 1));
    const double rate = received / *std::max_element(c.seconds.begin(), c.seconds.end());
    MT_RETURN_IF_ERROR(results.Add(
        absl::StrCat(c.operation == Operation::kAllGather ? "all-gather" : "reduce-scatter", " of ",
                     FormatBytesShort(c.bytes), " by ", count, " GPUs, received by each"),
        rate / 1e9, "GB/s",
        absl::StrFormat("%.3f of copies both ways at once", rate / peer_bytes_per_second)));
  }
  return absl::OkStatus();
}

}  // namespace megatrain
