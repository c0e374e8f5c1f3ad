// Tables that fit: columns shrink, and the least important ones go, until a line is no wider than
// the terminal.
#ifndef MEGATRAIN_CLIENT_OUTPUT_TABLE_H_
#define MEGATRAIN_CLIENT_OUTPUT_TABLE_H_

#include <string>
#include <vector>

#include "client/output/text.h"

namespace megatrain::client {

struct TableColumn {
  std::string heading;
  bool right = false;
  // May be cut to this many columns; 0: is never cut.
  int width_min = 0;
  // Columns of the highest number are left out first where there is no room; 0: never.
  int dispensable = 0;
};

class Table {
 public:
  explicit Table(std::vector<TableColumn> columns) : columns_(std::move(columns)) {}

  // REQUIRES: as many cells as columns. Cells are made printable.
  void AddRow(std::vector<std::string> cells);

  // Heading and rows, a line each with its end. `width`: of the terminal, 0: not limited.
  std::string Render(int width, Charset charset) const;

 private:
  const std::vector<TableColumn> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_OUTPUT_TABLE_H_
