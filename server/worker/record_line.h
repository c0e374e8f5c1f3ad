// A line of a record log: see record_log.h. Writer and reader share it.
#ifndef MEGATRAIN_SERVER_WORKER_RECORD_LINE_H_
#define MEGATRAIN_SERVER_WORKER_RECORD_LINE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace megatrain {

// The parts of a line; `text` points into it.
struct RecordLine {
  char kind = 't';  // 't' a text, 'f' fell back
  int64_t sequence = 0;
  int64_t step = 0;
  std::string_view text;
};

// With its '\n'. REQUIRES: text holds none.
std::string FormatRecordLine(const RecordLine& line);

// `line` without its '\n'. Nothing if it is not whole: the checksum decides.
std::optional<RecordLine> ParseRecordLine(std::string_view line);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_WORKER_RECORD_LINE_H_
