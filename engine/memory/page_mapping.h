// Maps anonymous host memory in pages of a chosen size, near a chosen NUMA node. HostPool uses it.
#ifndef MEGATRAIN_ENGINE_MEMORY_PAGE_MAPPING_H_
#define MEGATRAIN_ENGINE_MEMORY_PAGE_MAPPING_H_

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

inline constexpr int64_t kSmallPageBytes = 4096;
inline constexpr int64_t kHugePageBytes = int64_t{2} << 20;
inline constexpr int64_t kGiantPageBytes = int64_t{1} << 30;

// Owns a mapping and unmaps it when destroyed. Move only; a default-constructed one is empty.
//
// Thread safety: Touch may be called for different ranges at once; all other methods by one thread.
class PageMapping {
 public:
  // Maps `bytes`, rounded up to whole pages of kSmallPageBytes, kHugePageBytes or kGiantPageBytes.
  // The larger two kinds come from the pages that the system has set aside. The start is aligned to
  // a huge page. Returns ResourceExhausted if there is not enough. REQUIRES: bytes > 0, and
  // `page_bytes` is one of these three.
  static absl::StatusOr<PageMapping> Map(int64_t bytes, int64_t page_bytes);
  PageMapping() = default;
  PageMapping(PageMapping&& other) noexcept { *this = std::move(other); }
  PageMapping& operator=(PageMapping&& other) noexcept;
  ~PageMapping();

  char* data() const { return data_; }  // null if empty
  int64_t page_bytes() const { return page_bytes_; }

  // The methods from here on REQUIRE that the mapping is not empty.

  // Permits the kernel to join small pages to huge ones; it need not do so.
  void AllowHugePages();
  // Asks the kernel to take the pages of [begin, end) that are touched later from this NUMA node,
  // as long as the node has any. The bounds are offsets as Touch has them. Returns Unavailable if
  // the kernel refuses, InvalidArgument if `node` is not from 0 to 1023.
  absl::Status PreferNode(int node, int64_t begin, int64_t end);
  // Makes the kernel provide the pages of [begin, end), which are offsets in bytes at page
  // boundaries or at the mapping's end. Call it before data is written: it may overwrite a byte of
  // each page. Returns ResourceExhausted if the kernel does not grant huge pages that Map reserved,
  // as at a control group's limit. For small pages, and before Linux 5.14, the kernel ends the
  // process instead.
  absl::Status Touch(int64_t begin, int64_t end);

 private:
  char* data_ = nullptr;
  int64_t mapped_bytes_ = 0;  // counted from data_
  int64_t page_bytes_ = kSmallPageBytes;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MEMORY_PAGE_MAPPING_H_
