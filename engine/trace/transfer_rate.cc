#include "engine/trace/transfer_rate.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace megatrain {
namespace {

constexpr absl::Duration kInterval = absl::Seconds(1);
constexpr absl::Duration kWindow = absl::Minutes(1);
// Sooner a rate says more of the first file than of the rest.
constexpr absl::Duration kAfter = absl::Seconds(3);

std::string TimeLeft(double seconds) {
  const int64_t whole = static_cast<int64_t>(std::ceil(std::min(seconds, 1e9)));
  const auto of = [](int64_t count, const char* unit) {
    return absl::StrCat(count, " ", unit, count == 1 ? "" : "s");
  };
  if (whole < 100) return of(whole, "second");
  if (whole < 100 * 60) return of((whole + 59) / 60, "minute");
  return of((whole + 3599) / 3600, "hour");
}

}  // namespace

std::optional<std::string> TransferRate::TextIfDue(absl::Time now, int64_t done, int64_t total) {
  const bool ended = done >= total && (moments_.empty() || moments_.back().done < done);
  while (!moments_.empty() && moments_.back().time > now) moments_.pop_back();
  if (!ended && !moments_.empty() && now - moments_.back().time < kInterval) return std::nullopt;
  while (moments_.size() > 1 && now - moments_[1].time >= kWindow) moments_.pop_front();
  moments_.push_back({now, done});
  const Moment& first = moments_.front();
  const double seconds = absl::ToDoubleSeconds(now - first.time);
  if (now - first.time < kAfter || done <= first.done) return "";
  const double rate = static_cast<double>(done - first.done) / seconds;
  return absl::StrFormat(": %.3g MB/s, %s left", rate / 1e6,
                         TimeLeft(static_cast<double>(total - done) / rate));
}

}  // namespace megatrain
