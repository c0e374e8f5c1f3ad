#include "engine/memory/page_mapping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "engine/memory/host_pool.h"

namespace megatrain {
namespace {

using testing::HasSubstr;
using testing::Not;

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
  EXPECT_FALSE(pages->PreferNode(-1, 0, kHugePageBytes).ok());
  EXPECT_FALSE(pages->PreferNode(1 << 20, 0, kHugePageBytes).ok());
}

// Placing is a matter of speed alone. The nodes from 1000 on are beyond what any machine has.
TEST(PageMappingTest, APoolSaysWhatItLiesInAndWhereItCouldNotBePlaced) {
  const auto describe = [](const std::vector<int>& nodes) {
    HostPoolOptions options;
    options.capacity = 3 * kHugePageBytes;
    options.numa_nodes = nodes;
    const auto pool = HostPool::Create(options);
    EXPECT_TRUE(pool.ok()) << pool.status();
    return pool.ok() ? (*pool)->DescribePages() : "";
  };
  EXPECT_THAT(describe({1000}), HasSubstr("small pages, not placed on NUMA node 1000 ("));
  EXPECT_THAT(describe({1000, 1001}),
              HasSubstr("small pages, not placed on NUMA nodes 1000 and 1001 ("));
  EXPECT_THAT(describe({0, 1000}), HasSubstr(", not placed on NUMA nodes 0 and 1000 ("));
  EXPECT_THAT(describe({}), Not(HasSubstr("placed")));
}

}  // namespace
}  // namespace megatrain
