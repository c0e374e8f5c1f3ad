// DeviceArena divides one block of device memory among weight buffers, gradient accumulators,
// stash, activations and workspace. This is done once, before the first step. Apart from this block
// a job's steps allocate only the workspaces of streams (KernelSizes::StreamWorkspaceBytes) and a
// rank's memory for exchange (PipelineDimensions::exchange_bytes), so the plan can name every byte
// that the steps allocate. Libraries take more by themselves (MemoryBudget::device_reserve_bytes).
//
// An arena without a block does the same arithmetic and refuses the same requests, so the plan can
// run the code that the executor runs.
//
// Thread safety: one thread at a time.
#ifndef MEGATRAIN_ENGINE_MEMORY_DEVICE_ARENA_H_
#define MEGATRAIN_ENGINE_MEMORY_DEVICE_ARENA_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace megatrain {

// The uses of device memory (engine/pipeline/buffers.h says what each holds).
enum class DeviceKind {
  kWeightBuffers,
  kGradientAccumulators,
  kStash,
  kActivations,
  kWorkspace,
  kBatches,
  kOther,
};
// Returns "weight buffers", "gradient accumulators", "stash", "activations", "workspace", "batches"
// or "other".
const char* DeviceKindName(DeviceKind kind);

// A reserved piece of an arena's block, valid as long as that block. Does not own memory.
struct DeviceBlock {
  void* data = nullptr;  // null in an arena without a block
  int64_t offset = 0;
  int64_t bytes = 0;  // as requested
};

class DeviceArena {
 public:
  static constexpr int64_t kAlignment = 256;

  struct Item {
    std::string name;
    DeviceKind kind;
    int64_t offset;
    int64_t bytes;  // the request, rounded up to kAlignment
  };

  // `block` has `limit` bytes, must be aligned to kAlignment and must outlive the arena. Null means
  // arithmetic only. REQUIRES: limit >= 0.
  DeviceArena(void* block, int64_t limit) : block_(static_cast<char*>(block)), limit_(limit) {}

  // Reserves the next `bytes`, aligned to kAlignment. Returns ResourceExhausted, naming the item
  // and the bytes requested, free and used, if these bytes, rounded up to kAlignment, are more
  // than free_bytes(). Returns FailedPrecondition after Seal. An error leaves the arena unchanged.
  // REQUIRES: bytes >= 0.
  absl::StatusOr<DeviceBlock> Reserve(std::string_view name, int64_t bytes, DeviceKind kind);

  // Ends planning: every later Reserve is refused.
  void Seal() { sealed_ = true; }

  int64_t limit() const { return limit_; }
  int64_t used() const { return used_; }
  int64_t free_bytes() const { return limit_ - used_; }
  // Returns the sum of Item::bytes of this kind.
  int64_t bytes_in_use(DeviceKind kind) const;
  const std::vector<Item>& items() const { return items_; }

  // Returns one line for each name in order of first appearance (items of one name are added up),
  // then the total and the limit, for people.
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
