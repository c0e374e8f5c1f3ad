#include "engine/memory/page_mapping.h"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"

namespace megatrain {
namespace {

// MAP_HUGETLB takes the page's size as its binary logarithm, from this bit on.
constexpr int kPageSizeShift = 26;
constexpr int kHugeLog2 = 21, kGiantLog2 = 30;
// Takes pages as a write does, but gives an error where a write would end the process. Linux 5.14.
constexpr int kPopulateWrite = 23;

constexpr int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

absl::StatusOr<PageMapping> PageMapping::Map(int64_t bytes, int64_t page_bytes) {
  const bool set_aside = page_bytes > kSmallPageBytes;
  // Small pages: one huge page more than asked, so that an aligned start can be cut out; the rest
  // is given back.
  const int64_t wanted = RoundUp(bytes, page_bytes);
  const int64_t mapped = set_aside ? wanted : wanted + kHugePageBytes;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (set_aside) {
    flags |= MAP_HUGETLB | (page_bytes == kGiantPageBytes ? kGiantLog2 : kHugeLog2)
                               << kPageSizeShift;
  }
  void* const start =
      mmap(nullptr, static_cast<size_t>(mapped), PROT_READ | PROT_WRITE, flags, -1, 0);
  if (start == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the kernel refused to reserve ", FormatBytes(bytes), ": ", std::strerror(errno)));
  }
  PageMapping mapping;
  mapping.page_bytes_ = page_bytes;
  mapping.mapped_bytes_ = wanted;
  mapping.data_ = static_cast<char*>(start);
  if (set_aside) return mapping;
  const int64_t before = -reinterpret_cast<intptr_t>(start) & (kHugePageBytes - 1);
  const int64_t behind = mapped - before - wanted;
  mapping.data_ += before;
  if (before > 0) munmap(start, static_cast<size_t>(before));
  if (behind > 0) munmap(mapping.data_ + wanted, static_cast<size_t>(behind));
  return mapping;
}

PageMapping& PageMapping::operator=(PageMapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  std::swap(page_bytes_, other.page_bytes_);
  return *this;
}

PageMapping::~PageMapping() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(mapped_bytes_));
}

void PageMapping::AllowHugePages() {
  (void)madvise(data_, static_cast<size_t>(mapped_bytes_), MADV_HUGEPAGE);
}

absl::Status PageMapping::PreferNode(int node, int64_t begin, int64_t end) {
  constexpr int kBits = 64;
  std::array<unsigned long, 16> nodes = {};
  if (node < 0 || node >= kBits * static_cast<int>(nodes.size())) {
    return absl::InvalidArgumentError(absl::StrCat("NUMA node ", node, ": out of range"));
  }
  nodes[static_cast<size_t>(node / kBits)] = 1ul << (node % kBits);
  // The kernel takes one bit less than it is told.
  if (syscall(SYS_mbind, data_ + begin, RoundUp(end, page_bytes_) - begin, MPOL_PREFERRED,
              nodes.data(), nodes.size() * kBits + 1, 0) == 0) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat("mbind: ", std::strerror(errno)));
}

absl::Status PageMapping::Touch(int64_t begin, int64_t end) {
  if (page_bytes_ > kSmallPageBytes) {
    const int64_t bytes = RoundUp(end, page_bytes_) - begin;
    if (madvise(data_ + begin, static_cast<size_t>(bytes), kPopulateWrite) == 0) {
      return absl::OkStatus();
    }
    if (errno != EINVAL) {  // of an older kernel
      return absl::ResourceExhaustedError(
          absl::StrCat("huge pages are not given: ", std::strerror(errno)));
    }
  }
  for (int64_t at = begin; at < end; at += page_bytes_) {
    *static_cast<volatile char*>(data_ + at) = 0;
  }
  return absl::OkStatus();
}

}  // namespace megatrain
