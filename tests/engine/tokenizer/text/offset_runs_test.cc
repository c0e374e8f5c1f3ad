// Where what is written of a text comes from, kept beside it byte by byte.
#include "engine/tokenizer/text/offset_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace megatrain {
namespace {

// Keeps, replaces and leaves out pieces of `source` at random. `origins` is set to where each byte
// of the new text comes from.
std::string Rewrite(const std::string& source, std::mt19937& random, OffsetRuns* runs,
                    std::vector<size_t>* origins) {
  std::string text;
  RunWriter writer(&text, runs);
  origins->clear();
  for (size_t at = 0; at < source.size();) {
    const size_t end = std::min(source.size(), at + 1 + random() % 4);
    const size_t kind = random() % 4;
    if (kind < 2) {
      writer.Keep(source, at, end);
      for (size_t i = at; i < end; ++i) origins->push_back(i);
    } else if (kind == 2) {
      const size_t bytes = 1 + random() % 4;
      writer.Put(std::string(bytes, '+'), at);
      origins->insert(origins->end(), bytes, at);
    }
    at = end;
  }
  return text;
}

void ExpectOrigins(const OffsetRuns& runs, const std::vector<size_t>& origins,
                   std::mt19937& random) {
  size_t hint = 0, any_hint = 0;
  for (size_t i = 0; i < origins.size(); ++i) {
    ASSERT_EQ(OriginalOffset(runs, i, &hint), origins[i]) << i;
    // Wherever the search before has ended.
    const size_t any = random() % origins.size();
    ASSERT_EQ(OriginalOffset(runs, any, &any_hint), origins[any]) << any;
  }
}

TEST(OffsetRunsTest, EveryByteIsLedBackToWhereItComesFrom) {
  std::mt19937 random(1);
  const std::string source = "the bytes of this text differ in what becomes of them";
  for (int round = 0; round < 1000; ++round) {
    OffsetRuns first, second;
    std::vector<size_t> first_origins, second_origins;
    const std::string once = Rewrite(source, random, &first, &first_origins);
    ASSERT_NO_FATAL_FAILURE(ExpectOrigins(first, first_origins, random)) << round;
    const std::string twice = Rewrite(once, random, &second, &second_origins);
    ASSERT_NO_FATAL_FAILURE(ExpectOrigins(second, second_origins, random)) << round;
    ComposeRuns(first, &second);
    for (size_t& origin : second_origins) origin = first_origins[origin];
    ASSERT_NO_FATAL_FAILURE(ExpectOrigins(second, second_origins, random)) << round;
  }
}

TEST(OffsetRunsTest, WhatFollowsWithoutAGapIsOneRun) {
  const std::string source = "abcdef";
  std::string text;
  OffsetRuns runs;
  RunWriter writer(&text, &runs);
  writer.Keep(source, 0, 2);
  writer.Keep(source, 2, 3);
  writer.Keep(source, 3, 3);
  EXPECT_EQ(runs.size(), 1u);
  writer.Put("x", 3);
  writer.Put("", 4);
  writer.Put("y", 3);
  EXPECT_EQ(runs.size(), 2u);
  writer.Put("z", 4);
  EXPECT_EQ(runs.size(), 3u);
  writer.Keep(source, 5, 6);
  EXPECT_EQ(runs.size(), 4u);
  EXPECT_EQ(text, "abcxyzf");
}

TEST(OffsetRunsTest, NothingIsWrittenOnceATextIsTooLong) {
  const std::string source = "abcdef";
  std::string text;
  RunWriter writer(&text, nullptr, /*bytes_max=*/3);
  writer.Keep(source, 0, 2);
  writer.Put("x", 2);
  EXPECT_EQ(text, "abx") << "as long as it may be";
  writer.Put("yz", 3);
  EXPECT_EQ(text, "abxyz") << "so that it is seen";
  writer.Put("x", 4);
  writer.Keep(source, 4, 6);
  EXPECT_EQ(text, "abxyz");
}

// A text from byte 10 of the original on; what it is normalized to; and a part of that from byte 2
// on, before which a mark was put.
TEST(OffsetRunsTest, AChainLeadsThroughAllItsTexts) {
  const OffsetRuns normalized = {{0, 0, false}, {3, 4, true}, {5, 6, false}};
  const OffsetRuns marked = {{0, 0, true}, {1, 0, false}};
  OffsetChain original = {10, nullptr, nullptr, 0};
  OffsetChain middle = {2, &normalized, &original, 0};
  OffsetChain chain = {0, &marked, &middle, 0};
  EXPECT_EQ(chain.Original(0), 12u) << "the mark has the place of the text";
  EXPECT_EQ(chain.Original(1), 12u);
  EXPECT_EQ(chain.Original(2), 14u);
  EXPECT_EQ(chain.Original(3), 14u);
  EXPECT_EQ(chain.Original(4), 16u);
  EXPECT_EQ(chain.Original(5), 17u);
  EXPECT_EQ(chain.InNormalized(0), 2u);
  EXPECT_EQ(chain.InNormalized(4), 5u);
  EXPECT_EQ(middle.InNormalized(3), 5u);
  EXPECT_EQ(original.InNormalized(3), 13u);
}

}  // namespace
}  // namespace megatrain
