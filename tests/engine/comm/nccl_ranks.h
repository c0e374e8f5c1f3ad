// Ranks of one process with a GPU each, and their communicators over NCCL, as tests and benchmarks
// of exchanges take them.
#ifndef MEGATRAIN_TESTS_ENGINE_COMM_NCCL_RANKS_H_
#define MEGATRAIN_TESTS_ENGINE_COMM_NCCL_RANKS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"
#include "engine/comm/nccl_api.h"
#include "engine/comm/nccl_communicator.h"
#include "engine/device/device.h"
#include "tests/engine/comm/communicator_checks.h"

namespace megatrain {

// Thread safety: one thread at a time.
class NcclRank {
 public:
  // Returns the errors of CreateStream.
  static absl::StatusOr<std::unique_ptr<NcclRank>> Create(std::shared_ptr<Device> device,
                                                          std::unique_ptr<NcclApi> nccl);

  Device& device() { return *device_; }
  Stream& stream() { return *stream_; }
  // REQUIRES: OnEachNcclRank has called this rank's body, which has not ended.
  Communicator& communicator() { return *communicator_; }

  // The GPU's memory, which lives as long as the rank. What goes wrong is kept in status().
  DeviceBuffers Buffers();
  const absl::Status& status() const { return status_; }
  // Waits for the queued work.
  absl::Status Synchronize();

 private:
  friend std::vector<absl::Status> OnEachNcclRank(
      const std::vector<std::unique_ptr<NcclRank>>& ranks, std::vector<CommunicatorSet>& sets,
      int64_t scratch_bytes, const NcclPatience& patience,
      const std::function<absl::Status(int rank)>& body, int group_ranks);

  NcclRank(std::shared_ptr<Device> device, std::unique_ptr<NcclApi> nccl,
           std::unique_ptr<Stream> stream)
      : device_(std::move(device)), nccl_(std::move(nccl)), stream_(std::move(stream)) {}
  absl::Status Open(std::unique_ptr<Communicator> bootstrap, int64_t scratch_bytes,
                    const NcclPatience& patience, int group_ranks);

  const std::shared_ptr<Device> device_;
  const std::unique_ptr<NcclApi> nccl_;
  absl::Status status_;
  std::unique_ptr<DeviceMemory> scratch_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
  const std::unique_ptr<Stream> stream_;
  std::unique_ptr<Communicator> communicator_;
};

// Opens each rank's communicator over its set's `tiles`, which it takes, and calls `body`, in a
// thread for each rank. A communicator ends with its body, after an error without waiting for the
// others. Returns what the ranks returned.
std::vector<absl::Status> OnEachNcclRank(const std::vector<std::unique_ptr<NcclRank>>& ranks,
                                         std::vector<CommunicatorSet>& sets, int64_t scratch_bytes,
                                         const NcclPatience& patience,
                                         const std::function<absl::Status(int rank)>& body,
                                         int group_ranks = 1);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_COMM_NCCL_RANKS_H_
