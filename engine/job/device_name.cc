#include "engine/job/device_name.h"

#include <charconv>

namespace megatrain {

std::optional<DeviceName> ParseDeviceName(std::string_view text) {
  constexpr std::string_view kNumbered = "cuda:";
  constexpr size_t kDigitsMax = 3;  // more GPUs than a machine has
  if (text == "auto") return DeviceName{};
  if (text == "cpu") return DeviceName{DeviceName::Kind::kCpu, -1};
  if (text == "cuda") return DeviceName{DeviceName::Kind::kCuda, -1};
  if (text.substr(0, kNumbered.size()) != kNumbered) return std::nullopt;
  const std::string_view digits = text.substr(kNumbered.size());
  if (digits.empty() || digits.size() > kDigitsMax || (digits.size() > 1 && digits[0] == '0') ||
      digits.find_first_not_of("0123456789") != std::string_view::npos) {
    return std::nullopt;
  }
  DeviceName name{DeviceName::Kind::kCuda, 0};
  std::from_chars(digits.data(), digits.data() + digits.size(), name.ordinal);
  return name;
}

}  // namespace megatrain
