#include "engine/memory/memory_nodes.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"

namespace megatrain {

bool KernelPageNodes(absl::Span<void* const> pages, absl::Span<int> nodes) {
  // Automatic NUMA balancing hides pages, to see who reads them: move_pages would find none there.
  for (void* const page : pages) (void)*static_cast<const volatile char*>(page);
  // Without nodes to move to, move_pages tells where pages are.
  constexpr int kThisProcess = 0, kNoFlags = 0;
  return syscall(SYS_move_pages, kThisProcess, pages.size(), pages.data(), nullptr, nodes.data(),
                 kNoFlags) == 0;
}

MemoryNodes::MemoryNodes(const void* begin, int64_t bytes, const PageNodes& ask) {
  const char* const start = static_cast<const char*>(begin);
  end_ = start + bytes;
  std::vector<void*> pages;
  for (int64_t at = 0; at < bytes; at += kPieceBytes) {
    pages.push_back(const_cast<char*>(start) + at);
  }
  std::vector<int> nodes(pages.size(), -1);
  if (!ask(pages, absl::MakeSpan(nodes))) return;
  for (size_t i = 0; i < pages.size(); ++i) {
    const int node = std::max(nodes[i], -1);
    if (!runs_.empty() && runs_.back().node == node) continue;
    runs_.push_back({static_cast<const char*>(pages[i]), node});
  }
}

int MemoryNodes::NodeOf(const void* address) const {
  const char* const at = static_cast<const char*>(address);
  if (runs_.empty() || at < runs_.front().begin || at >= end_) return -1;
  const auto behind = std::upper_bound(runs_.begin(), runs_.end(), at,
                                       [](const char* a, const Run& run) { return a < run.begin; });
  return std::prev(behind)->node;
}

bool MemoryNodes::several() const { return runs_.size() > 1; }

std::string MemoryNodes::Describe() const {
  if (!several()) return "";
  std::map<int, int64_t> bytes;
  for (size_t i = 0; i < runs_.size(); ++i) {
    bytes[runs_[i].node] += (i + 1 < runs_.size() ? runs_[i + 1].begin : end_) - runs_[i].begin;
  }
  return absl::StrJoin(bytes, ", ", [](std::string* out, const std::pair<const int, int64_t>& of) {
    absl::StrAppend(out, FormatBytesShort(of.second), " on ",
                    of.first < 0 ? "an unknown NUMA node" : absl::StrCat("NUMA node ", of.first));
  });
}

}  // namespace megatrain
