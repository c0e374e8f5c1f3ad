#include "engine/trace/event_file.h"

#include <gtest/gtest.h>

#include <string>

namespace megatrain {
namespace {

// RFC 3720, B.4, and the check value of the CRC's catalogues.
TEST(EventFileTest, Crc32cIsThatOfIscsi) {
  EXPECT_EQ(Crc32c(""), 0u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST(EventFileTest, AFrameHasItsLengthAndBothChecksums) {
  const std::string frame = EventFrame("123456789");
  ASSERT_EQ(frame.size(), 8u + 4 + 9 + 4);
  EXPECT_EQ(frame.substr(0, 8), std::string("\x09\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(frame.substr(12, 9), "123456789");
  // (crc >> 15 | crc << 17) + 0xa282ead8
  const uint32_t masked = ((0xe3069283u >> 15) | (0xe3069283u << 17)) + 0xa282ead8u;
  EXPECT_EQ(MaskedCrc32c("123456789"), masked);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(static_cast<uint8_t>(frame[21 + i]), (masked >> (8 * i)) & 0xff);
  }
}

}  // namespace
}  // namespace megatrain
