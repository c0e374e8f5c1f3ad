#include "client/output/table.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace megatrain::client {
namespace {

constexpr int kGap = 2;

}  // namespace

void Table::AddRow(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = Printable(cell);
  rows_.push_back(std::move(cells));
}

std::string Table::Render(int width, Charset charset) const {
  std::vector<int> widths(columns_.size());
  for (size_t i = 0; i < columns_.size(); ++i) {
    widths[i] = DisplayWidth(columns_[i].heading);
    for (const std::vector<std::string>& row : rows_) {
      widths[i] = std::max(widths[i], DisplayWidth(row[i]));
    }
  }
  std::vector<size_t> shown(columns_.size());
  std::iota(shown.begin(), shown.end(), 0);
  const auto total = [&](bool smallest) {
    int sum = kGap * std::max(0, static_cast<int>(shown.size()) - 1);
    for (const size_t i : shown) {
      const int least = columns_[i].width_min;
      sum += smallest && least > 0 ? std::min(widths[i], least) : widths[i];
    }
    return sum;
  };
  while (width > 0 && total(/*smallest=*/true) > width) {
    const auto least = std::max_element(shown.begin(), shown.end(), [this](size_t a, size_t b) {
      return columns_[a].drop_order < columns_[b].drop_order;
    });
    if (least == shown.end() || columns_[*least].drop_order == 0) break;
    shown.erase(least);
  }
  while (width > 0 && total(/*smallest=*/false) > width) {
    int* widest = nullptr;
    for (const size_t i : shown) {
      const bool may_shrink = columns_[i].width_min > 0 && widths[i] > columns_[i].width_min;
      if (may_shrink && (widest == nullptr || widths[i] > *widest)) widest = &widths[i];
    }
    if (widest == nullptr) break;
    --*widest;
  }

  std::string text;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (const size_t i : shown) {
      if (i != shown.front()) line += std::string(kGap, ' ');
      const std::string cell = Ellipsize(cell_of(i), widths[i], charset);
      line += columns_[i].right ? PadLeft(cell, widths[i]) : PadRight(cell, widths[i]);
    }
    absl::StripTrailingAsciiWhitespace(&line);
    if (width > 0) line = Ellipsize(line, width, charset);
    absl::StrAppend(&text, line, "\n");
  };
  add_line([this](size_t i) { return columns_[i].heading; });
  for (const std::vector<std::string>& row : rows_) add_line([&row](size_t i) { return row[i]; });
  return text;
}

}  // namespace megatrain::client
