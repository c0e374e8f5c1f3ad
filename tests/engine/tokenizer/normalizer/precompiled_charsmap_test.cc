#include "engine/tokenizer/normalizer/precompiled_charsmap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace megatrain {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> Clusters(std::string_view text) {
  std::vector<std::string> clusters;
  for (size_t at = 0; at < text.size();) {
    const size_t end = GraphemeEnd(text, at);
    EXPECT_GT(end, at);
    if (end <= at) break;
    clusters.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return clusters;
}

TEST(PrecompiledCharsmapTest, ClustersAreThoseOfUnicode) {
  const std::vector<std::vector<std::string>> texts = {
      {"a", "b"},
      {"a", "\r\n", "\n", "\r", "\r", "a"},
      {"a", "\u200b", "\u0301", "a"},  // a control joins nothing
      {"e\u0301\u0316", "\u00e9"},
      {"\u0915\u0903", "\u0915"},  // a spacing mark
      {"\u0600a", "\u0600\u0915"},
      {"\u0600", "\n"},
      // Hangul: leading consonants, vowels and trailing ones, and syllables with a trailing one or
      // without.
      {"\u1100\u1100\u1161\u1161\u11a8\u11a8", "\u1161"},
      {"\u1100\uac00\u1161\u11a8", "\u1100\uac01\u11a8", "\u1100"},
      {"\uac00\u11a8", "\uac00", "\uac01", "\u1161"},
      {"\u1161", "\u1100"},
      {"\u1161", "\uac00"},
      {"\u11a8", "\u1100", "a"},
      {"\u1100", "a", "\u11a8"},
      // Flags are pairs.
      {"\U0001f1e9\U0001f1ea", "\U0001f1eb\U0001f1f7", "\U0001f1e9"},
      {"\U0001f1e9\u0301", "\U0001f1ea"},
      {"a", "\U0001f1e9\U0001f1ea"},
      // Joined pictographs.
      {"\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f469"},
      {"\U0001f469\U0001f3fd\u200d\U0001f467"},
      {"\U0001f469\u200d", "a\u200d", "\U0001f467"}};
  for (const std::vector<std::string>& clusters : texts) {
    std::string text;
    for (const std::string& cluster : clusters) text += cluster;
    EXPECT_EQ(Clusters(text), clusters);
  }
  // Some neighbours are known to be apart whatever is around them.
  for (const auto& [before, after] :
       std::vector<std::pair<char32_t, char32_t>>{{'a', 'b'}, {'\n', '\r'}, {'\r', 'a'}}) {
    EXPECT_TRUE(ClusterEndsBetween(before, after));
  }
  // A joining character, a flag's half, a syllable, one that Unicode may yet give a meaning.
  EXPECT_FALSE(ClusterEndsBetween('\r', '\n'));
  for (const char32_t c : {0x301, 0x1f1e9, 0xac00, 0x378}) {
    EXPECT_FALSE(ClusterEndsBetween('a', c)) << static_cast<uint32_t>(c);
    EXPECT_FALSE(ClusterEndsBetween(c, 'a')) << static_cast<uint32_t>(c);
  }
}

// A table that makes "E" of "e" and "'" of U+0301, in the format of darts-clone, as far as its
// first `units` units. The unit of a byte lies at the place that the unit before names, xor the
// byte. Here the units of first bytes are around 256, those of second ones around 768, and the
// places of the replacements at 512 and 513.
std::string Table(size_t units) {
  std::vector<uint32_t> trie(768 + 256);
  const auto put = [&trie](uint32_t around, uint32_t byte, bool is_entry, uint32_t next) {
    const uint32_t place = around ^ byte;
    trie[place] = byte | (is_entry ? uint32_t{1} << 8 : 0) | (place ^ next) << 10;
  };
  trie[0] = uint32_t{256} << 10;
  put(256, 'e', true, 512);
  put(256, 0xcc, false, 768);
  put(768, 0x81, true, 513);
  trie[512] = 0;
  trie[513] = 2;
  const auto bytes = static_cast<uint32_t>(units * sizeof(uint32_t));
  std::string blob(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  blob.append(reinterpret_cast<const char*>(trie.data()), bytes);
  return blob + std::string("E\0'\0", 4);
}

std::string Applied(size_t units, std::string_view text, OffsetRuns* runs = nullptr) {
  const auto charsmap = PrecompiledCharsmap::Parse(Table(units));
  EXPECT_TRUE(charsmap.ok()) << charsmap.status();
  std::string out;
  RunWriter writer(&out, runs);
  if (charsmap.ok()) charsmap->Apply(text, &writer);
  return out;
}

// As in `tokenizers`: what stands for the first character then stands for the others, too.
TEST(PrecompiledCharsmapTest, AClusterOfLessThanSixBytesIsReplacedAsAWhole) {
  EXPECT_EQ(Applied(1024, "xey"), "xEy");
  EXPECT_EQ(Applied(1024, "e\u0301y"), "Ey");
  EXPECT_EQ(Applied(1024, "e\u0301\u0316"), "E") << "5 bytes";
  EXPECT_EQ(Applied(1024, "e\u0301\u20d0"), "E'\u20d0") << "6 bytes";
  EXPECT_EQ(Applied(1024, "a\u0301y"), "a'y") << "the cluster begins with no entry";
  EXPECT_EQ(Applied(1024, ""), "");
}

TEST(PrecompiledCharsmapTest, AReplacementStandsForItsCharacterInTheText) {
  OffsetRuns runs;
  ASSERT_EQ(Applied(1024, "xe\u0301y", &runs), "xEy");
  size_t hint = 0;
  EXPECT_EQ(OriginalOffset(runs, 0, &hint), 0u);
  EXPECT_EQ(OriginalOffset(runs, 1, &hint), 1u);
  EXPECT_EQ(OriginalOffset(runs, 2, &hint), 4u);
  // Of a longer cluster each character by itself.
  ASSERT_EQ(Applied(1024, "e\u0301\u20d0", &runs), "E'\u20d0");
  hint = 0;
  EXPECT_EQ(OriginalOffset(runs, 1, &hint), 1u);
  EXPECT_EQ(OriginalOffset(runs, 2, &hint), 3u);
}

TEST(PrecompiledCharsmapTest, ATableThatLeadsBeyondItsEndReplacesNothing) {
  // Without the places of the replacements, without the units of first bytes, with the first alone.
  for (const size_t units : {size_t{512}, size_t{256}, size_t{1}}) {
    EXPECT_EQ(Applied(units, "xe\u0301 \u0301y"), "xe\u0301 \u0301y") << units;
  }
}

TEST(PrecompiledCharsmapTest, ATableWhoseSizesDoNotFitIsRefused) {
  const auto error = [](const std::string& blob) {
    const auto parsed = PrecompiledCharsmap::Parse(blob);
    return parsed.ok() ? "accepted" : std::string(parsed.status().message());
  };
  const std::string unit(4, '\0');
  const auto sized = [](char bytes) { return std::string{bytes, '\0', '\0', '\0'}; };
  EXPECT_THAT(error("\x04"), HasSubstr("fewer than 4"));
  EXPECT_THAT(error(std::string(3, '\0')), HasSubstr("fewer than 4"));
  EXPECT_THAT(error(sized(0) + unit), HasSubstr("gives its trie 0 bytes"));
  EXPECT_THAT(error(sized(8) + unit), HasSubstr("gives its trie 8 bytes; 4 bytes follow"));
  EXPECT_THAT(error(sized(5) + unit + unit), HasSubstr("gives its trie 5 bytes"));
  EXPECT_EQ(error(sized(4) + unit), "accepted");
  EXPECT_THAT(error(sized(4) + unit + "a\xff"), HasSubstr("invalid UTF-8 at byte 1"));
  const std::string end(1, '\0');
  EXPECT_EQ(error(sized(4) + unit + "a" + end + std::string(255, 'b') + end), "accepted");
  EXPECT_THAT(error(sized(4) + unit + "a" + end + std::string(256, 'b') + end),
              HasSubstr("a replacement of 256 bytes"));
}

}  // namespace
}  // namespace megatrain
