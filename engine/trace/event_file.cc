#include "engine/trace/event_file.h"

#include <array>
#include <bit>

namespace megatrain {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78u;
constexpr uint32_t kMaskDelta = 0xa282ead8u;

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = MakeTable();

template <typename T>
std::string LittleEndian(T value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffffu;
  for (const char c : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  return ~crc;
}

uint32_t MaskedCrc32c(std::string_view bytes) { return std::rotr(Crc32c(bytes), 15) + kMaskDelta; }

std::string EventFrame(std::string_view record) {
  const std::string length = LittleEndian(static_cast<uint64_t>(record.size()));
  std::string frame = length + LittleEndian(MaskedCrc32c(length));
  frame += record;
  return frame + LittleEndian(MaskedCrc32c(record));
}

}  // namespace megatrain
