// The safetensors format, shared by its reader and its writer.
//
//   8 bytes       N, the length of the header, little-endian
//   N bytes       JSON, an object that begins with '{' and may end in spaces:
//                 {"NAME": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [BEGIN, END]}, ...,
//                  "__metadata__": {"KEY": "VALUE", ...}}
//   the rest      tensor data, row-major, little-endian; BEGIN and END count from its first byte.
//                 Tensors cover it without a gap or an overlap, whatever their order in the header.
#ifndef MEGATRAIN_ENGINE_HF_SAFETENSORS_FORMAT_H_
#define MEGATRAIN_ENGINE_HF_SAFETENSORS_FORMAT_H_

#include <cstdint>
#include <string_view>

namespace megatrain {

inline constexpr int64_t kSafetensorsLengthBytes = 8;
inline constexpr int64_t kSafetensorsHeaderBytesMax = 100'000'000;
// The writer pads the header with spaces so that the data begins at a multiple of this.
inline constexpr int64_t kSafetensorsAlignmentBytes = 8;
inline constexpr std::string_view kSafetensorsMetadataKey = "__metadata__";

struct SafetensorsDType {
  std::string_view name;
  int bits;  // per element; below 8, a tensor's bits must fill whole bytes
};

// All types of the format.
inline constexpr SafetensorsDType kSafetensorsDTypes[] = {
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HF_SAFETENSORS_FORMAT_H_
