// Anonymous host memory in pages of a chosen size, placed near a device. What HostPool lies in.
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

// Unmapped with the object. Move only.
//
// Thread safety: Touch may be called for different ranges at once; all else by one thread.
class PageMapping {
 public:
  // `bytes` > 0, in pages of kSmallPageBytes (which the kernel may join to huge ones, if told), of
  // kHugePageBytes or of kGiantPageBytes; the latter two from what the system has set aside.
  // ResourceExhausted if there is not as much. Starts at a huge page in any case.
  static absl::StatusOr<PageMapping> Map(int64_t bytes, int64_t page_bytes);
  PageMapping() = default;
  PageMapping(PageMapping&& other) noexcept { *this = std::move(other); }
  PageMapping& operator=(PageMapping&& other) noexcept;
  ~PageMapping();

  char* data() const { return data_; }  // null if empty
  int64_t page_bytes() const { return page_bytes_; }

  // Lets the kernel join small pages to huge ones. Advice: may be ignored.
  void AllowHugePages();
  // Pages touched from now on come from this NUMA node as long as it has any.
  absl::Status PreferNode(int node);
  // Takes the pages of [begin, end) now; both whole pages or the mapping's end. ResourceExhausted
  // if pages that were promised are not given after all (a control group's limit).
  absl::Status Touch(int64_t begin, int64_t end);

 private:
  char* data_ = nullptr;
  int64_t mapped_bytes_ = 0;  // from data_ on
  int64_t page_bytes_ = kSmallPageBytes;
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_MEMORY_PAGE_MAPPING_H_
