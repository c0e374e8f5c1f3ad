#include "engine/tokenizer/model/word_cache.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace megatrain {
namespace {

// Texts that differ in one byte, in their length alone, or in whether they are whole words.
TEST(WordCacheTest, EachTextHasTokensOfItsOwn) {
  WordCache cache;
  for (const uint32_t offset : {5u, 3000u}) {
    int32_t id = 0;
    for (size_t size = 1; size <= WordCache::kBytesMax + 2; ++size) {
      for (size_t place = 0; place < size; ++place) {
        for (const char c : {'b', '\0'}) {
          for (const bool whole : {false, true}) {
            std::string text(size, 'a');
            text[place] = c;
            ++id;
            const auto second = offset + static_cast<uint32_t>(size) - 1;
            std::vector<TokenAt> tokens = {{-7, 1}};  // of what is before the text
            cache.Remember(text, whole, offset, &tokens, [&] {
              tokens.push_back({id, offset});
              tokens.push_back({id + 100000, second});
            });
            ASSERT_EQ(tokens.size(), 3u) << size << " " << place;
            EXPECT_EQ(tokens[0].id, -7);
            EXPECT_EQ(tokens[1].id, id) << size << " " << place;
            EXPECT_EQ(tokens[1].begin, offset) << size << " " << place;
            EXPECT_EQ(tokens[2].id, id + 100000) << size << " " << place;
            EXPECT_EQ(tokens[2].begin, second) << size << " " << place;
          }
        }
      }
    }
  }
}

TEST(WordCacheTest, WordsOfManyTokensAreNotRemembered) {
  WordCache cache;
  for (const size_t count : {WordCache::kTokensMax, WordCache::kTokensMax + 1}) {
    int calls = 0;
    for (int round = 0; round < 2; ++round) {
      std::vector<TokenAt> tokens;
      cache.Remember(std::string(count, 'x'), /*whole=*/true, 0, &tokens, [&] {
        ++calls;
        for (size_t i = 0; i < count; ++i) {
          tokens.push_back({static_cast<int32_t>(i), static_cast<uint32_t>(i)});
        }
      });
      ASSERT_EQ(tokens.size(), count);
      for (size_t i = 0; i < count; ++i) {
        EXPECT_EQ(tokens[i].id, static_cast<int32_t>(i));
        EXPECT_EQ(tokens[i].begin, i);
      }
    }
    EXPECT_EQ(calls, count == WordCache::kTokensMax ? 1 : 2);
  }
}

}  // namespace
}  // namespace megatrain
