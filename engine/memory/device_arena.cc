#include "engine/memory/device_arena.h"

#include <algorithm>
#include <cassert>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/bytes.h"

namespace megatrain {

const char* DeviceKindName(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kWeightBuffers:
      return "weight buffers";
    case DeviceKind::kGradientAccumulators:
      return "gradient accumulators";
    case DeviceKind::kStash:
      return "stash";
    case DeviceKind::kActivations:
      return "activations";
    case DeviceKind::kWorkspace:
      return "workspace";
    case DeviceKind::kBatches:
      return "batches";
    case DeviceKind::kOther:
      return "other";
  }
  return "unknown";
}

absl::StatusOr<DeviceBlock> DeviceArena::Reserve(std::string_view name, int64_t bytes,
                                                 DeviceKind kind) {
  assert(bytes >= 0);
  const std::string item_name(name);
  if (sealed_) {
    return absl::FailedPreconditionError(
        absl::StrCat("device arena: '", item_name, "' (", FormatBytes(bytes),
                     ") was asked for after the arena was sealed"));
  }
  // used_ and limit_ may be anything: compare before rounding, so that nothing overflows.
  const int64_t free = free_bytes();
  const int64_t taken = bytes > free ? bytes : (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (taken > free) {
    return absl::ResourceExhaustedError(
        absl::StrCat("device arena: no room for '", item_name, "' (", DeviceKindName(kind),
                     "): asked ", FormatBytes(bytes), ", free ", FormatBytes(free), ", used ",
                     FormatBytes(used_), ", limit ", FormatBytes(limit_)));
  }
  DeviceBlock block;
  block.offset = used_;
  block.bytes = bytes;
  if (block_ != nullptr) block.data = block_ + used_;
  items_.push_back({item_name, kind, used_, taken});
  used_ += taken;
  return block;
}

int64_t DeviceArena::bytes_in_use(DeviceKind kind) const {
  int64_t total = 0;
  for (const Item& item : items_) {
    if (item.kind == kind) total += item.bytes;
  }
  return total;
}

std::string DeviceArena::Table() const {
  struct Row {
    std::string name;
    int64_t count;
    int64_t bytes;
  };
  std::vector<Row> rows;
  for (const Item& item : items_) {
    const auto same = std::find_if(rows.begin(), rows.end(),
                                   [&item](const Row& row) { return row.name == item.name; });
    if (same == rows.end()) {
      rows.push_back({item.name, 1, item.bytes});
    } else {
      ++same->count;
      same->bytes += item.bytes;
    }
  }
  std::string table;
  const auto append = [&table](const std::string& name, int64_t bytes) {
    absl::StrAppendFormat(&table, "%-36s %12s %22s bytes\n", name, FormatBytesShort(bytes),
                          FormatCount(bytes));
  };
  for (const Row& row : rows) {
    append(row.count == 1 ? row.name : absl::StrCat(row.name, " x ", row.count), row.bytes);
  }
  append("total", used_);
  append("limit", limit_);
  return table;
}

}  // namespace megatrain
