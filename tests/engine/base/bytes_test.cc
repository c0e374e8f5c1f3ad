#include "engine/base/bytes.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace megatrain {
namespace {

TEST(BytesTest, FormatsCounts) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(1000), "1,000");
  EXPECT_EQ(FormatCount(15590123520), "15,590,123,520");
  EXPECT_EQ(FormatCount(-999), "-999");
  EXPECT_EQ(FormatCount(-1234567), "-1,234,567");
  EXPECT_EQ(FormatCount(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(BytesTest, FormatsBytes) {
  EXPECT_EQ(FormatBytes(0), "0 bytes");
  EXPECT_EQ(FormatBytes(1), "1 byte");
  EXPECT_EQ(FormatBytes(1023), "1023 bytes");
  EXPECT_EQ(FormatBytes(1024), "1.00 KiB (1,024 bytes)");
  EXPECT_EQ(FormatBytes(15590123520), "14.52 GiB (15,590,123,520 bytes)");
  EXPECT_EQ(FormatBytesShort(3 * kTiB / 2), "1.50 TiB");
  EXPECT_EQ(FormatBytesShort(-2 * kMiB), "-2.00 MiB");
  EXPECT_EQ(FormatBytes(-1023), "-1023 bytes");
  EXPECT_EQ(FormatBytes(-1024), "-1.00 KiB (-1,024 bytes)");
}

TEST(BytesTest, ParsesNumbersAndUnits) {
  EXPECT_EQ(*ParseBytes("0"), 0);
  EXPECT_EQ(*ParseBytes(" 1048576 "), 1048576);
  EXPECT_EQ(*ParseBytes("1KiB"), kKiB);
  EXPECT_EQ(*ParseBytes("7 MiB"), 7 * kMiB);
  EXPECT_EQ(*ParseBytes("1.5 GiB"), kGiB + kGiB / 2);
  EXPECT_EQ(*ParseBytes("2TiB"), 2 * kTiB);
  EXPECT_EQ(*ParseBytes("0.0009765625KiB"), 1);
  EXPECT_EQ(*ParseBytes("0.1 KiB"), 102);  // 102.4 rounded down
  EXPECT_EQ(*ParseBytes("0.99999999999999999999 KiB"), 1023);
  EXPECT_EQ(*ParseBytes("9223372036854775807"), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(*ParseBytes("9007199254740991.9999999999999 KiB"), std::numeric_limits<int64_t>::max());
  // The 13th digit counts, and the 14th would make a whole byte.
  EXPECT_EQ(*ParseBytes("0.9999999999999 TiB"), kTiB - 1);
  EXPECT_EQ(*ParseBytes("0.00000000000091 TiB"), 0);
}

TEST(BytesTest, RefusesWhatIsNoSize) {
  for (const char* text : {"", " ", "-1", "+1", "GiB", "1.5", "1.", "1. GiB", ".5 GiB", "1 GB",
                           "1 gib", "1GiB x", "0x10", "1e9", "nan", "9223372036854775808",
                           "8388608 TiB", "99999999999999999999999 KiB"}) {
    const auto parsed = ParseBytes(text);
    EXPECT_FALSE(parsed.ok()) << text << " gave " << *parsed;
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(parsed.status().message()).find("KiB, MiB, GiB or TiB"),
              std::string::npos);
  }
  EXPECT_EQ(ParseBytes("8 GB").status().message(),
            "'8 GB' is not a size: unknown unit 'GB'; write bytes (1048576) or a number with KiB, "
            "MiB, GiB or TiB (1.5 GiB)");
}

}  // namespace
}  // namespace megatrain
