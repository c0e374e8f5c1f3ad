// A table of text that fits a width: columns are narrowed and the least important ones left out
// until no line is wider.
#ifndef MEGATRAIN_CLIENT_OUTPUT_TABLE_H_
#define MEGATRAIN_CLIENT_OUTPUT_TABLE_H_

#include <string>
#include <vector>

#include "client/output/text.h"

namespace megatrain::client {

struct TableColumn {
  std::string heading;
  bool right = false;  // aligned at the right
  // Cells may be cut to this many characters; 0: they are never cut.
  int width_min = 0;
  // Where there is no room the columns of the highest number are left out first; 0: never left out.
  int dispensable = 0;
};

class Table {
 public:
  explicit Table(std::vector<TableColumn> columns) : columns_(std::move(columns)) {}

  // REQUIRES: as many cells as columns. Cells are made printable.
  void AddRow(std::vector<std::string> cells);

  // Returns the heading and the rows, a line each with its end, of at most `width` characters if
  // that can be; 0: any.
  std::string Render(int width, Charset charset) const;

 private:
  const std::vector<TableColumn> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_OUTPUT_TABLE_H_
