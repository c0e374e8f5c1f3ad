// Sizes in bytes: formatting them for people and parsing them from configuration files.
#ifndef MEGATRAIN_ENGINE_BASE_BYTES_H_
#define MEGATRAIN_ENGINE_BASE_BYTES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace megatrain {

inline constexpr int64_t kKiB = int64_t{1} << 10;
inline constexpr int64_t kMiB = int64_t{1} << 20;
inline constexpr int64_t kGiB = int64_t{1} << 30;
inline constexpr int64_t kTiB = int64_t{1} << 40;

// 15590123520 -> "15,590,123,520".
std::string FormatCount(int64_t value);

// 15590123520 -> "14.52 GiB"; below 1 KiB "512 bytes". Two decimals, rounded to nearest.
std::string FormatBytesShort(int64_t bytes);

// 15590123520 -> "14.52 GiB (15,590,123,520 bytes)"; below 1 KiB "512 bytes".
std::string FormatBytes(int64_t bytes);

// Parses "1048576", "1024 KiB" or "1.5GiB": a decimal number, not negative, optionally with one of
// the units KiB, MiB, GiB, TiB. White space around it is ignored. A fraction needs a unit, and its
// digits after the 13th are ignored. The result is rounded down to a whole byte. Returns
// InvalidArgument, saying what is wrong, for any other text and for more than 2^63 - 1 bytes.
absl::StatusOr<int64_t> ParseBytes(std::string_view text);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_BYTES_H_
