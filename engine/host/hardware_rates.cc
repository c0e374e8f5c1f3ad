#include "engine/host/hardware_rates.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

// The rates that each precision has.
constexpr double PrecisionRates::*kPrecise[] = {
    &PrecisionRates::update_bytes_per_second, &PrecisionRates::matmul_flops_per_second,
    &PrecisionRates::attention_flops_per_second,
    &PrecisionRates::attention_backward_flops_per_second,
    &PrecisionRates::element_bytes_per_second};
constexpr double HardwareRates::*kLink[] = {&HardwareRates::h2d_bytes_per_second,
                                            &HardwareRates::d2h_bytes_per_second,
                                            &HardwareRates::h2d_beside_d2h_bytes_per_second,
                                            &HardwareRates::d2h_beside_h2d_bytes_per_second};

struct RateName {
  const char* name;
  const char* unit;
  double scale;      // of the unit
  int precise = -1;  // index in kPrecise; -1: of no precision
};
constexpr RateName kNames[] = {{"dram", "GB/s", 1e9 * kUpdateShareOfHostMemory, 0},
                               {"host_memory", "GB/s", 1e9},
                               {"link", "GB/s", 1e9},
                               {"products", "TFLOP/s", 1e12, 1},
                               {"attention_forward", "TFLOP/s", 1e12, 2},
                               {"attention_backward", "TFLOP/s", 1e12, 3},
                               {"memory", "TB/s", 1e12, 4},
                               {"collective", "GB/s", 1e9},
                               {"network", "GB/s", 1e9},
                               {"launch", "microseconds", 1e-6}};

absl::Status Refuse(const std::string& assignment, const std::string& why) {
  return absl::InvalidArgumentError(
      absl::StrCat("--rate: ", assignment, " ", why, "; there are ",
                   absl::StrJoin(kNames, ", ", [](std::string* out, const RateName& rate) {
                     absl::StrAppend(out, rate.name, " (", rate.unit, ")");
                   })));
}

}  // namespace

void MergeFaster(const HardwareRates& other, HardwareRates* rates) {
  const auto keep = [](auto& rate, auto another) { rate = std::max(rate, another); };
  for (double HardwareRates::*rate : kLink) keep(rates->*rate, other.*rate);
  keep(rates->host_memory_bytes_per_second, other.host_memory_bytes_per_second);
  for (PrecisionRates HardwareRates::*precision : {&HardwareRates::fp32, &HardwareRates::bf16}) {
    for (double PrecisionRates::*rate : kPrecise) {
      keep(rates->*precision.*rate, other.*precision.*rate);
    }
  }
  const bool first = rates->launch_seconds == 0;
  if (first || other.launch_seconds < rates->launch_seconds) {
    rates->launch_seconds = other.launch_seconds;
  }
}

absl::Status SetRate(const std::string& assignment, HardwareRates* rates) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(assignment, absl::MaxSplits('=', 1));
  const auto& [name, text] = parts;
  for (const RateName& known : kNames) {
    if (name != known.name) continue;
    double value = 0;
    if (!absl::SimpleAtod(text, &value) || !std::isfinite(value) || value <= 0) {
      return Refuse(assignment, absl::StrCat("is not a rate above 0 in ", known.unit));
    }
    const double rate = value * known.scale;
    if (known.precise >= 0) {
      rates->fp32.*kPrecise[known.precise] = rates->bf16.*kPrecise[known.precise] = rate;
      if (name == "dram") rates->host_memory_bytes_per_second = 0;
    } else if (name == "host_memory") {
      rates->host_memory_bytes_per_second = rate;
    } else if (name == "link") {
      for (double HardwareRates::*direction : kLink) rates->*direction = rate;
    } else if (name == "collective") {
      rates->collective_bytes_per_second = rate;
    } else if (name == "network") {
      rates->network_bytes_per_second = rate;
    } else {
      rates->launch_seconds = rate;
    }
    return absl::OkStatus();
  }
  return Refuse(assignment, "is not known");
}

absl::Status SetRates(const std::vector<std::string>& assignments, HardwareRates* rates) {
  for (const std::string& assignment : assignments) {
    MT_RETURN_IF_ERROR(SetRate(assignment, rates));
  }
  return absl::OkStatus();
}

}  // namespace megatrain
