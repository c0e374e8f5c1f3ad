#include "client/output/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace megatrain::client {
namespace {

using ::testing::ElementsAre;

TEST(TextTest, Bytes) {
  EXPECT_EQ(SizeText(0), "0 B");
  EXPECT_EQ(SizeText(1023), "1023 B");
  EXPECT_EQ(SizeText(1536), "1.5 KiB");
  EXPECT_EQ(SizeText(int64_t{300} << 20), "300 MiB");
  EXPECT_EQ(SizeText(int64_t{1023} << 20), "1.0 GiB");
  EXPECT_EQ(SizeText(int64_t{3} << 40), "3.0 TiB");
}

TEST(TextTest, Rates) {
  EXPECT_EQ(FormatRate(0), "0");
  EXPECT_EQ(FormatRate(999.4), "999");
  EXPECT_EQ(FormatRate(1234), "1.23k");
  EXPECT_EQ(FormatRate(45600), "45.6k");
  EXPECT_EQ(FormatRate(2.5e12), "2.50T");
  EXPECT_EQ(FormatRate(std::numeric_limits<double>::quiet_NaN()), "--");
}

TEST(TextTest, Durations) {
  EXPECT_EQ(DurationText(absl::Seconds(0)), "0s");
  EXPECT_EQ(DurationText(absl::Milliseconds(59600)), "1m00s");
  EXPECT_EQ(DurationText(absl::Hours(2) + absl::Minutes(7)), "2h07m");
  EXPECT_EQ(DurationText(absl::Hours(99)), "4d03h");
  EXPECT_EQ(DurationText(-absl::Seconds(1)), "--");
  EXPECT_EQ(DurationText(absl::InfiniteDuration()), "--");
}

TEST(TextTest, WhatATerminalWouldObeyIsNotPrinted) {
  EXPECT_EQ(Printable("plain ünï 模型"), "plain ünï 模型");
  EXPECT_EQ(Printable("a\tb"), "a b");
  EXPECT_EQ(Printable("\x1b[2Jgone\r\n"), "?[2Jgone??");
  EXPECT_EQ(Printable("\xc2\x9b"
                      "2J"),
            "?2J")
      << "an 8-bit control sequence";
  EXPECT_EQ(Printable("a\xe2\x80\xae"
                      "b"),
            "a?b")
      << "a right-to-left override";
  EXPECT_EQ(Printable("\xff\xc3"), "??") << "broken UTF-8";
  EXPECT_EQ(Printable(std::string("\xc0\x80\xed\xa0\x80", 5)), "?????") << "overlong, surrogate";
}

TEST(TextTest, Widths) {
  EXPECT_EQ(DisplayWidth("abc"), 3);
  EXPECT_EQ(DisplayWidth("ünï"), 3);
  EXPECT_EQ(DisplayWidth("模型"), 4);
  EXPECT_EQ(DisplayWidth("e\xcc\x81"), 1) << "a combining accent";
  EXPECT_EQ(DisplayWidth("█▏⣿"), 3);
}

TEST(TextTest, Ellipsis) {
  EXPECT_EQ(Ellipsize("abcdef", 6, Charset::kUtf8), "abcdef");
  EXPECT_EQ(Ellipsize("abcdef", 5, Charset::kUtf8), "abcd…");
  EXPECT_EQ(Ellipsize("abcdef", 5, Charset::kAscii), "abcd~");
  EXPECT_EQ(Ellipsize("模型模型", 4, Charset::kUtf8), "模…") << "no half of a wide character";
  EXPECT_EQ(Ellipsize("abcdef", 1, Charset::kUtf8), "…");
  EXPECT_EQ(Ellipsize("abcdef", 0, Charset::kUtf8), "");
}

TEST(TextTest, Padding) {
  EXPECT_EQ(PadRight("模", 4), "模  ");
  EXPECT_EQ(PadLeft("ab", 4), "  ab");
  EXPECT_EQ(PadLeft("abcdef", 4), "abcdef");
}

TEST(TextTest, WordsFlow) {
  const auto flow = [](int width) {
    return FlowWords({"loss 2.1", "lr 0.1", "norm 3"}, width, 2, "  ", Charset::kUtf8);
  };
  EXPECT_THAT(flow(80), ElementsAre("loss 2.1  lr 0.1  norm 3"));
  EXPECT_THAT(flow(17), ElementsAre("loss 2.1  lr 0.1", "  norm 3"));
  EXPECT_THAT(flow(9), ElementsAre("loss 2.1", "  lr 0.1", "  norm 3"));
  EXPECT_THAT(flow(4), ElementsAre("los…", "  l…", "  n…"));
  EXPECT_THAT(FlowWords({}, 10, 2, " ", Charset::kUtf8), ElementsAre());
}

}  // namespace
}  // namespace megatrain::client
