// Device memory as one block, cut up once before the first step: weight buffers, gradient
// accumulators, stash, activations, workspace. The limit is hard: what is not reserved here cannot
// be used, so the bytes that the plan names are the bytes that the device holds.
//
// An arena without a block does the same arithmetic and refuses the same requests: the plan runs
// the very code that the executor runs.
#ifndef MEGATRAIN_ENGINE_MEMORY_DEVICE_ARENA_H_
#define MEGATRAIN_ENGINE_MEMORY_DEVICE_ARENA_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace megatrain {

// What device memory is for.
enum class DeviceKind {
  kWeightBuffers,
  kGradientAccumulators,
  kStash,
  kActivations,
  kWorkspace,
  kBatches,
  kOther,
};
inline constexpr int kDeviceKinds = 7;
// "weight buffers", "gradient accumulators", "stash", "activations", "workspace", "batches",
// "other".
const char* DeviceKindName(DeviceKind kind);

// A reserved piece. Does not own; valid as long as the arena's block.
struct DeviceBlock {
  void* data = nullptr;  // null in an arena without a block
  int64_t offset = 0;
  int64_t bytes = 0;  // as asked
};

class DeviceArena {
 public:
  static constexpr int64_t kAlignment = 256;

  struct Item {
    std::string name;
    DeviceKind kind;
    int64_t offset;
    int64_t bytes;  // taken: as asked, rounded up to kAlignment
  };

  // `block` [limit] must outlive the arena and be aligned to kAlignment; null: arithmetic only.
  // REQUIRES: limit >= 0.
  DeviceArena(void* block, int64_t limit) : block_(static_cast<char*>(block)), limit_(limit) {}

  // The next bytes, aligned to kAlignment. ResourceExhausted beyond the limit names the item and
  // all bytes concerned; the arena is unchanged then. FailedPrecondition after Seal.
  // REQUIRES: bytes >= 0.
  absl::StatusOr<DeviceBlock> Reserve(std::string_view name, int64_t bytes, DeviceKind kind);

  // Ends planning: every later Reserve is refused.
  void Seal() { sealed_ = true; }
  bool sealed() const { return sealed_; }

  int64_t limit() const { return limit_; }
  int64_t used() const { return used_; }
  int64_t free_bytes() const { return limit_ - used_; }
  int64_t bytes_in_use(DeviceKind kind) const;
  const std::vector<Item>& items() const { return items_; }

  // One line a name, in order of first appearance, equal names added up, then the total: for the
  // plan and for refusals.
  std::string Table() const;

 private:
  char* const block_;
  const int64_t limit_;
  int64_t used_ = 0;
  bool sealed_ = false;
  std::vector<Item> items_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MEMORY_DEVICE_ARENA_H_
