#include "engine/trace/progress_text.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace megatrain {
namespace {

constexpr int kBarCellsMax = 30;
constexpr int kBarCellsMin = 6;

std::string StepText(const StepRecord& record, int64_t total_steps) {
  // As wide at the first step as at the last, so that the line does not jump.
  const std::string total = absl::StrCat(total_steps);
  return absl::StrFormat("%*d/%s", static_cast<int>(total.size()), record.step, total);
}

std::string Bar(double fraction, int cells) {
  const int full = static_cast<int>(std::clamp(fraction, 0.0, 1.0) * cells);
  return absl::StrCat("[", std::string(full, '#'), std::string(cells - full, '.'), "]");
}

}  // namespace

std::string FormatDuration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "--";
  const int64_t total = static_cast<int64_t>(seconds + 0.5);
  if (total < 60) return absl::StrFormat("%ds", total);
  if (total < 3600) return absl::StrFormat("%dm%02ds", total / 60, total % 60);
  if (total < 86400) return absl::StrFormat("%dh%02dm", total / 3600, total / 60 % 60);
  return absl::StrFormat("%dd%02dh", total / 86400, total / 3600 % 24);
}

std::string FormatRate(double per_second) {
  if (!std::isfinite(per_second) || per_second < 0) return "--";
  if (per_second < 999.5) return absl::StrFormat("%.0f", per_second);
  const char* const units[] = {"k", "M", "G", "T", "P"};
  double value = per_second;
  size_t unit = 0;
  value /= 1000;
  while (value >= 999.5 && unit + 1 < std::size(units)) {
    value /= 1000;
    ++unit;
  }
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return absl::StrFormat("%.*f%s", decimals, value, units[unit]);
}

std::string ProgressBarLine(const StepRecord& record, int64_t total_steps, double seconds_left,
                            int width) {
  const int columns = std::max(width - 1, 1);
  const double fraction =
      total_steps > 0 ? static_cast<double>(record.step) / static_cast<double>(total_steps) : 0;
  std::vector<std::string> words = {
      StepText(record, total_steps),
      absl::StrFormat("loss %.4f", record.loss),
      absl::StrFormat("lr %.2e", record.learning_rate),
      absl::StrCat(FormatRate(record.tokens_per_second), " tok/s"),
      absl::StrCat("ETA ", FormatDuration(seconds_left)),
  };
  if (record.spread.has_value()) words.push_back(SlowestRankText(record));
  std::string text;
  for (const std::string& word : words) {
    const std::string longer = text.empty() ? word : absl::StrCat(text, "  ", word);
    if (static_cast<int>(longer.size()) > columns) break;
    text = longer;
  }
  if (text.empty()) return words[0].substr(0, columns);
  // "[" cells "] " before the words.
  const int cells = std::min(columns - static_cast<int>(text.size()) - 3, kBarCellsMax);
  return cells < kBarCellsMin ? text : absl::StrCat(Bar(fraction, cells), " ", text);
}

std::string EvalLossText(const StepRecord& record) {
  std::string text = absl::StrFormat("eval loss %.4f", *record.eval_loss);
  const char* join = " (";
  for (const auto& [name, loss] : record.eval_losses) {
    absl::StrAppendFormat(&text, "%s%s %.4f", join, name, loss);
    join = ", ";
  }
  if (!record.eval_losses.empty()) text += ")";
  return text;
}

std::string SlowestRankText(const StepRecord& record) {
  return absl::StrFormat("slowest: rank %d, compute %.3g s, mean %.3g s",
                         record.spread->slowest.compute, record.lane_busy_seconds.compute,
                         record.spread->mean.compute);
}

std::string ProgressLogLine(const StepRecord& record, int64_t total_steps, double seconds_left) {
  std::string line =
      absl::StrFormat("step %d/%d  loss %.4f  gradient norm %.3f  learning rate %.3e  %s tokens/s",
                      record.step, total_steps, record.loss, record.gradient_norm,
                      record.learning_rate, FormatRate(record.tokens_per_second));
  if (record.rewards.has_value()) {
    absl::StrAppendFormat(&line, "  reward margin %.3f  accuracy %.2f", record.rewards->margins,
                          record.rewards->accuracies);
  }
  if (record.eval_loss.has_value()) absl::StrAppend(&line, "  ", EvalLossText(record));
  if (record.spread.has_value()) absl::StrAppend(&line, "  ", SlowestRankText(record));
  absl::StrAppend(&line, "  ETA ", FormatDuration(seconds_left));
  return line;
}

}  // namespace megatrain
