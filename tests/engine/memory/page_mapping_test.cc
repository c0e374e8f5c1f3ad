#include "engine/memory/page_mapping.h"

#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "engine/memory/host_pool.h"

namespace megatrain {
namespace {

TEST(PageMappingTest, SmallPagesStartAtAHugeOne) {
  auto pages = PageMapping::Map(3 * kSmallPageBytes + 1, kSmallPageBytes);
  ASSERT_TRUE(pages.ok()) << pages.status();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pages->data()) % kHugePageBytes, 0u);
  EXPECT_EQ(pages->page_bytes(), kSmallPageBytes);
  ASSERT_TRUE(pages->Touch(0, 3 * kSmallPageBytes + 1).ok());
  std::memset(pages->data(), 1, 4 * kSmallPageBytes);
  const PageMapping moved = *std::move(pages);
  EXPECT_EQ(moved.data()[5], 1);
}

// Most machines have none set aside; what has them gives them.
TEST(PageMappingTest, HugePagesAreGivenOrRefused) {
  for (const int64_t page_bytes : {kHugePageBytes, kGiantPageBytes}) {
    auto pages = PageMapping::Map(page_bytes / 2, page_bytes);
    if (!pages.ok()) {
      EXPECT_EQ(pages.status().code(), absl::StatusCode::kResourceExhausted);
      continue;
    }
    EXPECT_EQ(pages->page_bytes(), page_bytes);
    if (pages->Touch(0, page_bytes / 2).ok()) pages->data()[page_bytes / 2 - 1] = 1;
  }
  EXPECT_EQ(PageMapping::Map(int64_t{1} << 50, kGiantPageBytes).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(PageMappingTest, ANodeThatThereIsNotIsRefused) {
  auto pages = PageMapping::Map(kHugePageBytes, kSmallPageBytes);
  ASSERT_TRUE(pages.ok()) << pages.status();
  EXPECT_FALSE(pages->PreferNode(-1).ok());
  EXPECT_FALSE(pages->PreferNode(1 << 20).ok());
}

TEST(PageMappingTest, APoolSaysWhatItLiesInAndWhereItCouldNotBePlaced) {
  HostPoolOptions options;
  options.capacity = 3 * kHugePageBytes;
  options.numa_node = 1000;  // beyond what any machine has: placing is a matter of speed alone
  const auto pool = HostPool::Create(options);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_NE((*pool)->DescribePages().find("small pages, not placed on NUMA node 1000"),
            std::string::npos)
      << (*pool)->DescribePages();
}

}  // namespace
}  // namespace megatrain
