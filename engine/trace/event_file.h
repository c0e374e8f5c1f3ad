// Frames the records of a TensorBoard event file, as TensorFlow's TFRecord format has them:
//   uint64 bytes, uint32 MaskedCrc32c of these 8 bytes, the record, uint32 MaskedCrc32c of the
//   record
// Numbers are little-endian.
#ifndef MEGATRAIN_ENGINE_TRACE_EVENT_FILE_H_
#define MEGATRAIN_ENGINE_TRACE_EVENT_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace megatrain {

// Returns the CRC-32C (Castagnoli, reflected polynomial 0x82f63b78) of `bytes`.
uint32_t Crc32c(std::string_view bytes);
// Returns the CRC-32C rotated right by 15 bits, plus 0xa282ead8, because a record may hold CRCs
// itself.
uint32_t MaskedCrc32c(std::string_view bytes);

// Returns the frame of `record`, to be appended to a file.
std::string EventFrame(std::string_view record);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_TRACE_EVENT_FILE_H_
