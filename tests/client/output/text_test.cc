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
  EXPECT_EQ(SizeText(1024), "1.0 KiB");
  EXPECT_EQ(SizeText(1536), "1.5 KiB");
  EXPECT_EQ(SizeText(int64_t{300} << 20), "300 MiB");
  EXPECT_EQ(SizeText(int64_t{1023} << 20), "1.0 GiB");
  EXPECT_EQ(SizeText(int64_t{3} << 40), "3.0 TiB");
  EXPECT_EQ(SizeText(10199), "10 KiB") << "not 10.0";
  EXPECT_EQ(SizeText(int64_t{1} << 60), "1024 PiB") << "the largest unit";
}

TEST(TextTest, Rates) {
  EXPECT_EQ(FormatRate(0), "0");
  EXPECT_EQ(FormatRate(999.4), "999");
  EXPECT_EQ(FormatRate(999.6), "1.00k");
  EXPECT_EQ(FormatRate(1234), "1.23k");
  EXPECT_EQ(FormatRate(45600), "45.6k");
  EXPECT_EQ(FormatRate(123456), "123k");
  EXPECT_EQ(FormatRate(9994), "9.99k");
  EXPECT_EQ(FormatRate(9996), "10.0k") << "not 10.00";
  EXPECT_EQ(FormatRate(99940), "99.9k");
  EXPECT_EQ(FormatRate(99960), "100k") << "not 100.0";
  EXPECT_EQ(FormatRate(999400), "999k");
  EXPECT_EQ(FormatRate(999600), "1.00M") << "not 1000";
  EXPECT_EQ(FormatRate(2.5e12), "2.50T");
  EXPECT_EQ(FormatRate(2e18), "2000P") << "the largest unit";
  EXPECT_EQ(FormatRate(-1), "--");
  EXPECT_EQ(FormatRate(std::numeric_limits<double>::quiet_NaN()), "--");
}

TEST(TextTest, Durations) {
  EXPECT_EQ(DurationText(absl::Seconds(0)), "0s");
  EXPECT_EQ(DurationText(absl::Seconds(59)), "59s");
  EXPECT_EQ(DurationText(absl::Milliseconds(59600)), "1m00s");
  EXPECT_EQ(DurationText(absl::Hours(1)), "1h00m");
  EXPECT_EQ(DurationText(absl::Hours(2) + absl::Minutes(7)), "2h07m");
  EXPECT_EQ(DurationText(absl::Hours(24)), "1d00h");
  EXPECT_EQ(DurationText(absl::Hours(99)), "4d03h");
  EXPECT_EQ(DurationText(absl::Hours(240000)), "10000d00h");
  EXPECT_EQ(DurationText(absl::Hours(240000) + absl::Seconds(1)), "--");
  EXPECT_EQ(DurationText(-absl::Seconds(1)), "--");
  EXPECT_EQ(DurationText(absl::InfiniteDuration()), "--");
}

TEST(TextTest, WhatATerminalWouldObeyIsNotPrinted) {
  EXPECT_EQ(Printable("plain ünï 模型"), "plain ünï 模型");
  EXPECT_EQ(Printable("a\tb"), "a b");
  EXPECT_EQ(Printable("\x1b[2Jgone\r\n"), "?[2Jgone??");
  EXPECT_EQ(PrintableLines("a\x1b\n\nb\r\n"), "a?\n\nb?\n");
  EXPECT_EQ(PrintableLines(""), "");
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

// The first and the last code point of each range.
TEST(TextTest, CodePointsAtTheEdgesOfWhatIsPrinted) {
  for (const std::string& printable :
       {std::string(" "), std::string("~"), std::string("\xc2\xa0"), std::string("\xdf\xbf"),
        std::string("\xe0\xa0\x80"), std::string("\xed\x9f\xbf"), std::string("\xee\x80\x80"),
        std::string("\xef\xbf\xbf"), std::string("\xf0\x90\x80\x80"),
        std::string("\xf4\x8f\xbf\xbf"), std::string("\xe2\x80\xa7"), std::string("\xe2\x80\xaf"),
        std::string("\xe2\x81\xa5"), std::string("\xe2\x81\xaa")}) {
    EXPECT_EQ(Printable(printable), printable);
  }
  for (const char* const control :
       {"\x1f", "\x7f", "\xc2\x80", "\xc2\x9f", "\xe2\x80\xa8", "\xe2\x80\xa9", "\xe2\x80\xaa",
        "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x81\xa9"}) {
    EXPECT_EQ(Printable(control), "?") << control;
  }
  // Overlong, a surrogate, beyond U+10FFFF, no lead byte: each byte by itself.
  for (const std::string& broken :
       {std::string("\xc1\xbf"), std::string("\xe0\x9f\xbf"), std::string("\xf0\x8f\xbf\xbf"),
        std::string("\xed\xbf\xbf"), std::string("\xf4\x90\x80\x80"),
        std::string("\xf5\x80\x80\x80"), std::string("\xbf")}) {
    EXPECT_EQ(Printable(broken), std::string(broken.size(), '?'));
  }
  EXPECT_EQ(Printable("\xe2(\xa1"), "?(?");
}

TEST(TextTest, Widths) {
  EXPECT_EQ(DisplayWidth("abc"), 3);
  EXPECT_EQ(DisplayWidth("ünï"), 3);
  EXPECT_EQ(DisplayWidth("模型"), 4);
  EXPECT_EQ(DisplayWidth("e\xcc\x81"), 1) << "a combining accent";
  EXPECT_EQ(DisplayWidth("█▏⣿"), 3);
  // Around the combining ones, U+0300 to U+036F.
  EXPECT_EQ(DisplayWidth("\xcb\xbf"), 1);
  EXPECT_EQ(DisplayWidth("\xcc\x80"), 0);
  EXPECT_EQ(DisplayWidth("\xcd\xaf"), 0);
  EXPECT_EQ(DisplayWidth("\xcd\xb0"), 1);
  // Around the first of the wide ones, U+1100 to U+115F, and the last.
  EXPECT_EQ(DisplayWidth("\xe1\x84\x80"), 2);
  EXPECT_EQ(DisplayWidth("\xe1\x85\x9f"), 2);
  EXPECT_EQ(DisplayWidth("\xe1\x85\xa0"), 1);
  EXPECT_EQ(DisplayWidth("\xf0\xbf\xbf\xbd"), 2);
  // One of each of the other ranges: joiners, marks for symbols, variants; hangul, a compatibility
  // ideograph, full-width forms and signs, emoji.
  for (const char* const none : {"\u200d", "\u20dd", "\ufe0f"}) {
    EXPECT_EQ(DisplayWidth(none), 0) << none;
  }
  for (const char* const wide : {"\ud55c", "\uf900", "\ufe30", "\uff21", "\uffe5", "\U0001f600"}) {
    EXPECT_EQ(DisplayWidth(wide), 2) << wide;
  }
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
