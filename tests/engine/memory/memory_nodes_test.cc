#include "engine/memory/memory_nodes.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/memory/host_pool.h"

namespace megatrain {
namespace {

constexpr int64_t kPiece = MemoryNodes::kPieceBytes;
char* const kBegin = reinterpret_cast<char*>(int64_t{1} << 40);  // never read

// Pieces on these nodes.
PageNodes On(std::vector<int> nodes) {
  return [nodes](absl::Span<void* const> pages, absl::Span<int> out) {
    EXPECT_EQ(pages.size(), nodes.size());
    for (size_t i = 0; i < nodes.size(); ++i) {
      EXPECT_EQ(pages[i], kBegin + static_cast<int64_t>(i) * kPiece);
      out[i] = nodes[i];
    }
    return true;
  };
}

TEST(MemoryNodesTest, FindsAnAddressesNode) {
  constexpr int kMissing = -2;  // -ENOENT: not touched
  const MemoryNodes nodes(kBegin, 5 * kPiece + 1, On({1, 1, 0, kMissing, 1, 1}));
  EXPECT_TRUE(nodes.several());
  EXPECT_EQ(nodes.NodeOf(kBegin - 1), -1);
  EXPECT_EQ(nodes.NodeOf(kBegin), 1);
  EXPECT_EQ(nodes.NodeOf(kBegin + 2 * kPiece - 1), 1);
  EXPECT_EQ(nodes.NodeOf(kBegin + 2 * kPiece), 0);
  EXPECT_EQ(nodes.NodeOf(kBegin + 3 * kPiece), -1);
  EXPECT_EQ(nodes.NodeOf(kBegin + 4 * kPiece), 1);
  EXPECT_EQ(nodes.NodeOf(kBegin + 5 * kPiece), 1);
  EXPECT_EQ(nodes.NodeOf(kBegin + 5 * kPiece + 1), -1);
  EXPECT_EQ(nodes.Describe(),
            "2.00 MiB on an unknown NUMA node, 2.00 MiB on NUMA node 0, 6.00 MiB on NUMA node 1");
}

TEST(MemoryNodesTest, OneNodeNeedsNoWords) {
  const MemoryNodes nodes(kBegin, 3 * kPiece, On({0, 0, 0}));
  EXPECT_FALSE(nodes.several());
  EXPECT_EQ(nodes.Describe(), "");
  EXPECT_EQ(nodes.NodeOf(kBegin + kPiece), 0);
}

TEST(MemoryNodesTest, WhatCannotBeLearntIsNotKnown) {
  const MemoryNodes refused(kBegin, kPiece, [](auto, auto) { return false; });
  EXPECT_EQ(refused.NodeOf(kBegin), -1);
  EXPECT_FALSE(refused.several());
  EXPECT_EQ(MemoryNodes().NodeOf(kBegin), -1);
  const MemoryNodes nothing(kBegin, 0, On({}));
  EXPECT_EQ(nothing.NodeOf(kBegin), -1);
}

TEST(MemoryNodesTest, TheKernelKnowsWhereAPoolLies) {
  HostPoolOptions options;
  options.capacity = 3 * kPiece;
  const auto pool = HostPool::Create(options);
  ASSERT_TRUE(pool.ok()) << pool.status();
  void* const page = (*pool)->data();
  int node = -1;
  if (!KernelPageNodes({&page, 1}, {&node, 1})) {
    GTEST_SKIP() << "this system lets nobody ask where pages are";
  }
  EXPECT_GE(node, 0);
  EXPECT_EQ((*pool)->nodes().NodeOf(page), node);
  options.touch_threads = 0;
  EXPECT_EQ((*HostPool::Create(options))->nodes().NodeOf(page), -1);
}

}  // namespace
}  // namespace megatrain
