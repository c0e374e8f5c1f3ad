// Table makes a table of text that fits a width. To fit, the least important columns are left out,
// columns are narrowed, and lines are cut.
#ifndef MEGATRAIN_CLIENT_OUTPUT_TABLE_H_
#define MEGATRAIN_CLIENT_OUTPUT_TABLE_H_

#include <string>
#include <utility>
#include <vector>

#include "client/output/text.h"

namespace megatrain::client {

struct TableColumn {
  std::string heading;
  bool right = false;  // aligns the cells right
  // Cells may be cut to this many columns of the terminal. 0 means that they are cut only if the
  // whole line is.
  int width_min = 0;
  // If there is no room, the column with the highest number is left out first. 0 means never.
  int drop_order = 0;
};

class Table {
 public:
  // The headings must be printable (text.h).
  explicit Table(std::vector<TableColumn> columns) : columns_(std::move(columns)) {}

  // Adds a row. Cells are made printable (text.h). REQUIRES: there are as many cells as columns.
  void AddRow(std::vector<std::string> cells);

  // Returns the heading and the rows, each a line with its line end. No line is wider than `width`
  // columns of the terminal. A width of 0 is unlimited.
  std::string Render(int width, Charset charset) const;

 private:
  const std::vector<TableColumn> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_OUTPUT_TABLE_H_
