// Pins host memory for a device's copies and remembers which ranges are pinned. Large ranges are
// pinned in pieces, because one call for 512 GiB fails on recent drivers. One copy of CUDA must not
// cross the border of two pieces, so ForEachPiece cuts copies at the borders.
//
// Thread safety: all methods may be called from any thread. Pin, Unpin and the destructor need a
// current device of the calling thread (cuda_api.h).
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_PINNED_RANGES_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_PINNED_RANGES_H_

#include <cstdint>
#include <functional>
#include <map>

#include "absl/status/status.h"
#include "engine/base/mutex.h"
#include "engine/device/cuda/libraries/cuda_api.h"
#include "engine/device/device.h"

namespace megatrain {

class PinnedRanges {
 public:
  static constexpr int64_t kPieceBytes = int64_t{1} << 30;

  // `api` must outlive this object. REQUIRES: piece_bytes is a positive multiple of the page size.
  explicit PinnedRanges(CudaApi* api, int64_t piece_bytes = kPieceBytes)
      : api_(api), piece_bytes_(piece_bytes) {}
  // Unpins the ranges that Pin has pinned and Unpin has not unpinned.
  ~PinnedRanges();
  PinnedRanges(const PinnedRanges&) = delete;
  PinnedRanges& operator=(const PinnedRanges&) = delete;

  // Pin and Unpin do as Device::PinHost and Device::UnpinHost. `progress` is called after each
  // piece. Pin returns the errors of CudaStatus, with the limit on locked memory in the message, or
  // the error of `progress`.
  absl::Status Pin(void* host, int64_t bytes, const PinProgress& progress);
  void Unpin(void* host);
  // Does as Device::ShareHostPin. REQUIRES: the other device has pinned the memory in pieces of the
  // same size.
  void Share(void* host, int64_t bytes);

  // Calls `copy(offset, bytes)` in order for the parts of [host, host + bytes), each of which lies
  // in one piece. `offset` is counted from `host`. Stops at the first error of `copy` and returns
  // it. Returns FailedPrecondition, without a call, unless all of [host, host + bytes) is in one
  // range that is pinned or shared.
  absl::Status ForEachPiece(
      const void* host, int64_t bytes,
      const std::function<absl::Status(int64_t offset, int64_t bytes)>& copy) const;

 private:
  struct Range {
    int64_t bytes = 0;
    bool own = true;  // pinned by Pin; false: shared, and pinned by another device
  };

  // Unpins the pieces of [host, host + bytes).
  void Unregister(char* host, int64_t bytes);

  CudaApi* const api_;
  const int64_t piece_bytes_;
  mutable Mutex mutex_;
  std::map<const char*, Range> ranges_ ABSL_GUARDED_BY(mutex_);  // by start
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_PINNED_RANGES_H_
