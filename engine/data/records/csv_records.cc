#include "engine/data/records/csv_records.h"

#include <csv.h>
#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/data/records/json_text.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

using Fields = std::vector<std::string>;

struct Row {
  Fields fields;     // the first of them, as many as there are columns
  size_t count = 0;  // of all its fields
};

bool HoldsJson(std::string_view column) {
  return column == "messages" || column == "conversations" || column == "tools";
}

// Columns with names that data of other kinds may have too.
bool MayHoldJson(std::string_view column) {
  return column == "documents" || column == "history" || column == "chat_template_kwargs";
}

// nlohmann alone would pass over a byte order mark and take a NUL for the end.
bool IsJson(std::string_view field) {
  return !field.starts_with(kByteOrderMark) && field.find('\0') == std::string_view::npos &&
         nlohmann::json::accept(field);
}

// The record's reader is asked too: it refuses some numbers.
bool IsReadAsJson(std::string_view field) {
  simdjson::dom::parser parser;
  return IsJson(field) && parser.parse(field.data(), field.size()).error() == simdjson::SUCCESS;
}

// A list, an object or null. Other JSON, such as a number, may be a text.
bool IsNestedOrNull(std::string_view field) {
  const size_t begin = field.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos &&
         std::string_view("[{n").find(field[begin]) != std::string_view::npos &&
         IsReadAsJson(field);
}

}  // namespace

struct CsvRecordReader::State {
  ByteSource* text = nullptr;
  std::string path;
  size_t record_bytes_max = 0;

  csv_parser parser = {};
  std::vector<char> buffer;
  size_t position = 0;  // the next byte of the buffer to parse
  size_t end = 0;
  bool begun = false;
  bool ended = false;
  absl::Status failure;  // of parsing; the rows before it are returned first
  size_t row_bytes = 0;  // parsed since the last row ended
  Row open;              // the row that is being parsed
  std::deque<Row> rows;  // that were parsed and not yet returned
  int64_t row = 0;       // the number of the row returned last, from 1
  Fields columns;
  std::string json;

  ~State() { csv_free(&parser); }

  absl::Status Error(int64_t at, const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat(path, ": row ", at, ": ", what));
  }
  int64_t open_row() const { return row + static_cast<int64_t>(rows.size()) + 1; }

  // An empty field takes a byte of the file and many of memory, so surplus ones are only counted.
  size_t fields_max() const { return columns.empty() ? kCsvColumnsMax : columns.size(); }
  static void TakeField(void* field, size_t bytes, void* self) {
    State& state = *static_cast<State*>(self);
    ++state.open.count;
    if (state.open.fields.size() == state.fields_max()) return;
    state.open.fields.emplace_back(static_cast<const char*>(field), bytes);
  }
  static void TakeRow(int, void* self) {
    State& state = *static_cast<State*>(self);
    state.rows.push_back(std::move(state.open));
    state.open = Row();
    state.row_bytes = 0;
  }

  absl::Status ParserError() const {
    if (csv_error(const_cast<csv_parser*>(&parser)) == CSV_EPARSE) {
      return Error(open_row(),
                   "a quote is misplaced: a field with a quote, a comma or a line end must be in "
                   "quotes, and its own quotes doubled");
    }
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": row ", open_row(), ": no memory for its fields"));
  }

  absl::Status Fill() {
    MT_ASSIGN_OR_RETURN(end, text->Read(buffer.data(), buffer.size()));
    position = 0;
    if (!begun) {
      // A short first read must not hide the byte order mark.
      while (end > 0 && end < 3) {
        MT_ASSIGN_OR_RETURN(const size_t more,
                            text->Read(buffer.data() + end, buffer.size() - end));
        if (more == 0) break;
        end += more;
      }
      begun = true;
      if (std::string_view(buffer.data(), end).starts_with(kByteOrderMark)) position = 3;
    }
    return absl::OkStatus();
  }

  // Parses on, at most to the end of a line. Sets `ended` at the end of the file.
  absl::Status Parse() {
    if (position == end) MT_RETURN_IF_ERROR(Fill());
    if (end == 0) {
      ended = true;
      if (csv_fini(&parser, TakeField, TakeRow, this) == 0) return absl::OkStatus();
      if (csv_error(&parser) != CSV_EPARSE) return ParserError();
      return Error(open_row(), "the file ends inside a field in quotes, which begins here");
    }
    const char* const from = buffer.data() + position;
    const void* const feed = std::memchr(from, '\n', end - position);
    const size_t take = feed == nullptr
                            ? end - position
                            : static_cast<size_t>(static_cast<const char*>(feed) - from) + 1;
    row_bytes += take;
    if (csv_parse(&parser, from, take, TakeField, TakeRow, this) != take) return ParserError();
    position += take;
    if (row_bytes > record_bytes_max) {
      return Error(open_row(), absl::StrCat("is longer than ",
                                            FormatBytes(static_cast<int64_t>(record_bytes_max)),
                                            "; a quote that is not closed may be the reason"));
    }
    return absl::OkStatus();
  }

  // Takes the next row. Returns false at the end of the file.
  absl::StatusOr<bool> NextRow(Row* next) {
    while (rows.empty() && !ended && failure.ok()) failure = Parse();
    if (rows.empty() && !failure.ok()) return failure;
    if (rows.empty()) return false;
    *next = std::move(rows.front());
    rows.pop_front();
    ++row;
    return true;
  }

  absl::Status TakeColumns(Row names) {
    if (names.count > kCsvColumnsMax) {
      return Error(row, absl::StrCat("names ", names.count, " columns; at most ", kCsvColumnsMax,
                                     " are read"));
    }
    columns = std::move(names.fields);
    std::set<std::string> seen;
    for (const std::string& column : columns) {
      if (column.empty()) {
        return Error(row,
                     "a column has no name; the first row names them (pandas' to_csv gives its "
                     "index none: use index=False)");
      }
      if (!CheckUtf8(column).ok()) return Error(row, "a column's name is not UTF-8");
      if (!seen.insert(column).second) {
        return Error(row, absl::StrCat("the column \"", column, "\" is there twice"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ToJson(const Row& values) {
    if (values.count != columns.size()) {
      return absl::InvalidArgumentError(absl::StrCat("has ", values.count,
                                                     values.count == 1 ? " field" : " fields",
                                                     "; the first row names ", columns.size()));
    }
    const Fields& fields = values.fields;
    json.assign(1, '{');  // not = "{": a warning of GCC 12 that is not true
    for (size_t i = 0; i < fields.size(); ++i) {
      const std::string& field = fields[i];
      const bool is_json = HoldsJson(columns[i]);
      const bool may_be_json = MayHoldJson(columns[i]);
      if ((is_json || may_be_json) && field.empty()) continue;
      if (json.size() > 1) json += ',';
      AppendJsonText(columns[i], &json);
      json += ':';
      const size_t valid = Utf8ValidPrefix(field);
      if (valid < field.size()) {
        return absl::InvalidArgumentError(absl::StrCat("column \"", columns[i],
                                                       "\": invalid UTF-8 at byte ", valid,
                                                       " of the field; data files must be UTF-8"));
      }
      if (!is_json && !(may_be_json && IsNestedOrNull(field))) {
        AppendJsonText(field, &json);
      } else if (!is_json || IsJson(field)) {
        json += field;
      } else {
        return absl::InvalidArgumentError(
            absl::StrCat("column \"", columns[i], "\": is not JSON text"));
      }
    }
    json += '}';
    return absl::OkStatus();
  }
};

CsvRecordReader::CsvRecordReader(ByteSource* text, std::string path, size_t chunk_bytes,
                                 size_t record_bytes_max)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.text = text;
  state.path = std::move(path);
  state.record_bytes_max = record_bytes_max;
  state.buffer.resize(std::max(chunk_bytes, size_t{3}));  // a byte order mark has 3
  csv_init(&state.parser, CSV_STRICT | CSV_STRICT_FINI);
  csv_set_blk_size(&state.parser, size_t{64} << 10);
  // The library's default drops white space around fields.
  csv_set_space_func(&state.parser, [](unsigned char) { return 0; });
}

CsvRecordReader::~CsvRecordReader() = default;

std::string CsvRecordReader::Place(const Record& record) const {
  return absl::StrCat(": row ", record.element);
}

absl::StatusOr<bool> CsvRecordReader::Next(Record* record) {
  State& state = *state_;
  Row row;
  if (state.columns.empty()) {
    MT_ASSIGN_OR_RETURN(const bool any, state.NextRow(&row));
    if (!any) return false;
    MT_RETURN_IF_ERROR(state.TakeColumns(std::move(row)));
  }
  MT_ASSIGN_OR_RETURN(const bool more, state.NextRow(&row));
  if (!more) return false;
  *record = Record();
  record->element = state.row;
  record->defect = state.ToJson(row);
  if (record->defect.ok()) record->json = state.json;
  return true;
}

}  // namespace megatrain
