#include "tests/bench/daemon/report.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

std::string Show(double value, const std::string& unit) {
  char text[64];
  const int digits = std::abs(value) >= 100 ? 0 : std::abs(value) >= 10 ? 1 : 3;
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return absl::StrCat(text, unit.empty() ? "" : " ", unit);
}

}  // namespace

void Report::AtLeast(const std::string& what, double measured, double bound,
                     const std::string& unit) {
  rows_.push_back(
      {what, absl::StrCat(">= ", Show(bound, unit)), Show(measured, unit), measured >= bound});
}

void Report::AtMost(const std::string& what, double measured, double bound,
                    const std::string& unit) {
  rows_.push_back(
      {what, absl::StrCat("<= ", Show(bound, unit)), Show(measured, unit), measured <= bound});
}

void Report::Exactly(const std::string& what, int64_t measured, int64_t expected) {
  rows_.push_back({what, absl::StrCat(expected), absl::StrCat(measured), measured == expected});
}

void Report::Note(const std::string& what, const std::string& measured) {
  rows_.push_back({what, "", measured});
}

void Report::Print() const {
  size_t what = 0, bound = 0;
  for (const Row& row : rows_) {
    what = std::max(what, row.what.size());
    bound = std::max(bound, row.bound.size());
  }
  std::printf("\n%-*s  %-*s  measured\n", static_cast<int>(what), "", static_cast<int>(bound),
              "must reach");
  for (const Row& row : rows_) {
    std::printf("%-*s  %-*s  %s%s\n", static_cast<int>(what), row.what.c_str(),
                static_cast<int>(std::max(bound, size_t{10})), row.bound.c_str(),
                row.measured.c_str(), row.met ? "" : "   MISSED");
  }
}

bool Report::Met() const {
  return std::all_of(rows_.begin(), rows_.end(), [](const Row& row) { return row.met; });
}

double Quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double place = std::ceil(q * static_cast<double>(values.size())) - 1;
  return values[static_cast<size_t>(
      std::clamp(place, 0.0, static_cast<double>(values.size() - 1)))];
}

}  // namespace megatrain
