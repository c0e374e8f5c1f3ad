#include "client/watch/loss_plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace megatrain::client {
namespace {

constexpr int kRowsMin = 3;  // two of the curve, one of labels
constexpr int kCellsMin = 8;
constexpr int kLabelWidthMin = 6;

// Dots of a cell: 2 by 4 in braille.
struct Grid {
  int cells_wide, cells_high, dots_wide, dots_high;
};

// A braille cell's dots are bits of the code point after U+2800, by column and row.
constexpr unsigned char kBrailleBits[2][4] = {{0x01, 0x02, 0x04, 0x40}, {0x08, 0x10, 0x20, 0x80}};

std::string Braille(unsigned char bits) {
  // U+2800 + bits in UTF-8.
  return std::string{static_cast<char>(0xE2), static_cast<char>(0xA0 | bits >> 6),
                     static_cast<char>(0x80 | (bits & 0x3F))};
}

// The mean loss of the steps that fall into each column of dots; NaN: none.
std::vector<double> ColumnMeans(const std::vector<LossPoint>& points, int columns) {
  const auto first = static_cast<double>(points.front().step);
  const double span = std::max(1.0, static_cast<double>(points.back().step) - first);
  std::vector<double> sums(columns, 0.0), counts(columns, 0.0);
  for (const LossPoint& point : points) {
    if (!std::isfinite(point.loss)) continue;
    const double place = (static_cast<double>(point.step) - first) / span * (columns - 1);
    const int column = std::clamp(static_cast<int>(std::lround(place)), 0, columns - 1);
    sums[column] += point.loss;
    counts[column] += 1;
  }
  for (int i = 0; i < columns; ++i) {
    sums[i] = counts[i] > 0 ? sums[i] / counts[i] : std::numeric_limits<double>::quiet_NaN();
  }
  return sums;
}

}  // namespace

std::vector<std::string> PlotLoss(const std::vector<LossPoint>& points, int columns, int rows,
                                  Charset charset) {
  const auto finite = [](const LossPoint& point) { return std::isfinite(point.loss); };
  if (rows < kRowsMin || std::count_if(points.begin(), points.end(), finite) < 2) return {};
  const bool braille = charset == Charset::kUtf8;
  const auto label = [](double value) { return absl::StrFormat("%.4g", value); };

  // The labels are those of means, which depend on the width that the labels leave. So the labels'
  // width grows until they fit.
  int label_width = kLabelWidthMin;
  Grid grid = {};
  std::vector<double> means;
  double low = 0, high = 0;
  for (;;) {
    const int cells_wide = columns - label_width - 2;
    if (cells_wide < kCellsMin) return {};
    grid = {cells_wide, rows - 1, cells_wide * (braille ? 2 : 1), (rows - 1) * (braille ? 4 : 1)};
    means = ColumnMeans(points, grid.dots_wide);
    low = std::numeric_limits<double>::infinity();
    high = -low;
    for (const double mean : means) {
      if (std::isnan(mean)) continue;
      low = std::min(low, mean);
      high = std::max(high, mean);
    }
    const int needed = static_cast<int>(std::max(label(low).size(), label(high).size()));
    if (needed <= label_width) break;
    label_width = needed;
  }
  const double span = high > low ? high - low : 1;

  std::vector<std::vector<bool>> dots(grid.dots_high, std::vector<bool>(grid.dots_wide, false));
  const auto row_of = [&](double value) {
    const double place = (high - value) / span * (grid.dots_high - 1);
    return std::clamp(static_cast<int>(std::lround(place)), 0, grid.dots_high - 1);
  };
  // A line from each column that has a value to the next one.
  int last_column = -1, last_row = 0;
  for (int column = 0; column < grid.dots_wide; ++column) {
    if (std::isnan(means[column])) continue;
    const int row = row_of(means[column]);
    if (last_column < 0) dots[row][column] = true;
    for (int x = last_column + 1; last_column >= 0 && x <= column; ++x) {
      const auto at = [&](int place) {
        return last_row +
               static_cast<int>(std::lround(static_cast<double>(row - last_row) *
                                            (place - last_column) / (column - last_column)));
      };
      const int from = at(x - 1), to = at(x);
      for (int y = std::min(from, to); y <= std::max(from, to); ++y) dots[y][x] = true;
    }
    last_column = column;
    last_row = row;
  }

  std::vector<std::string> lines;
  for (int cell_row = 0; cell_row < grid.cells_high; ++cell_row) {
    std::string name;
    if (cell_row == 0) {
      name = label(high);
    } else if (cell_row == grid.cells_high - 1) {
      name = label(low);
    }
    std::string line = absl::StrCat(PadLeft(name, label_width), braille ? " ▏" : " |");
    for (int cell = 0; cell < grid.cells_wide; ++cell) {
      if (!braille) {
        line += dots[cell_row][cell] ? '*' : ' ';
        continue;
      }
      unsigned char bits = 0;
      for (int x = 0; x < 2; ++x) {
        for (int y = 0; y < 4; ++y) {
          if (dots[cell_row * 4 + y][cell * 2 + x]) bits |= kBrailleBits[x][y];
        }
      }
      line += bits == 0 ? " " : Braille(bits);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  }
  const std::string first = absl::StrCat("step ", points.front().step);
  const std::string last = absl::StrCat(points.back().step);
  const int gap = grid.cells_wide - static_cast<int>(first.size() + last.size());
  lines.push_back(absl::StrCat(std::string(label_width + 2, ' '),
                               Ellipsize(first, grid.cells_wide, charset),
                               gap > 0 ? absl::StrCat(std::string(gap, ' '), last) : ""));
  return lines;
}

}  // namespace megatrain::client
