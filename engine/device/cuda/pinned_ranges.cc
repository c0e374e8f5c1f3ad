#include "engine/device/cuda/pinned_ranges.h"

#include <sys/resource.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/device/cuda/cuda_status.h"
#include "engine/device/device_lost.h"

namespace megatrain {
namespace {

// Returns the limit on locked memory, for people.
std::string MemoryLockLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "not known";
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited"
                                         : FormatBytes(static_cast<int64_t>(limit.rlim_cur));
}

absl::Status Refused(const absl::Status& status, int64_t pinned_bytes, int64_t bytes) {
  const std::string text = absl::StrCat(
      std::string(status.message()), "; ", FormatBytes(pinned_bytes), " of ", FormatBytes(bytes),
      " of host memory could be pinned, and nothing trains from memory that is not. "
      "The limit on locked memory (RLIMIT_MEMLOCK) is ",
      MemoryLockLimit(),
      ": raise it (ulimit -l unlimited; LimitMEMLOCK=infinity in a unit), or ask for "
      "less host memory");
  return IsDeviceLost(status) ? DeviceLostError(text) : absl::Status(status.code(), text);
}

}  // namespace

PinnedRanges::~PinnedRanges() {
  for (const auto& [start, range] : ranges_) {
    if (range.own) Unregister(const_cast<char*>(start), range.bytes);
  }
}

absl::Status PinnedRanges::Pin(void* host, int64_t bytes, const PinProgress& progress) {
  char* const start = static_cast<char*>(host);
  for (int64_t at = 0; at < bytes; at += piece_bytes_) {
    const int64_t piece = std::min(piece_bytes_, bytes - at);
    if (const int error = api_->HostRegister(start + at, piece); error != kCudaSuccess) {
      Unregister(start, at);
      return Refused(CudaStatus(*api_, error, "cudaHostRegister"), at, bytes);
    }
    if (!progress) continue;
    if (absl::Status status = progress(at + piece); !status.ok()) {
      Unregister(start, at + piece);
      return status;
    }
  }
  MutexLock lock(&mutex_);
  ranges_[start] = {.bytes = bytes, .own = true};
  return absl::OkStatus();
}

void PinnedRanges::Share(void* host, int64_t bytes) {
  MutexLock lock(&mutex_);
  ranges_[static_cast<const char*>(host)] = {.bytes = bytes, .own = false};
}

void PinnedRanges::Unpin(void* host) {
  Range unpinned;
  {
    MutexLock lock(&mutex_);
    const auto range = ranges_.find(static_cast<const char*>(host));
    if (range == ranges_.end()) return;
    unpinned = range->second;
    ranges_.erase(range);
  }
  if (unpinned.own) Unregister(static_cast<char*>(host), unpinned.bytes);
}

void PinnedRanges::Unregister(char* host, int64_t bytes) {
  // A device that is lost gives errors here, and its process is about to end.
  for (int64_t at = 0; at < bytes; at += piece_bytes_) (void)api_->HostUnregister(host + at);
}

absl::Status PinnedRanges::ForEachPiece(
    const void* host, int64_t bytes,
    const std::function<absl::Status(int64_t offset, int64_t bytes)>& copy) const {
  const char* const start = static_cast<const char*>(host);
  const char* base = nullptr;
  {
    MutexLock lock(&mutex_);
    auto range = ranges_.upper_bound(start);
    if (range != ranges_.begin()) {
      --range;
      if (start + bytes <= range->first + range->second.bytes) base = range->first;
    }
  }
  if (base == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        "cuda: a copy of ", FormatBytes(bytes), " from or to host memory that is not pinned"));
  }
  for (int64_t at = 0; at < bytes;) {
    const int64_t in_piece = (start + at - base) % piece_bytes_;
    const int64_t part = std::min(piece_bytes_ - in_piece, bytes - at);
    MT_RETURN_IF_ERROR(copy(at, part));
    at += part;
  }
  return absl::OkStatus();
}

}  // namespace megatrain
