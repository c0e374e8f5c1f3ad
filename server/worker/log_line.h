// A line of a job's log as its record keeps it: {"time": RFC 3339, "text": ...}.
#ifndef MEGATRAIN_SERVER_WORKER_LOG_LINE_H_
#define MEGATRAIN_SERVER_WORKER_LOG_LINE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace megatrain {

struct LogLine {
  std::string time;  // RFC 3339; empty: not known
  std::string text;
};

// Without a line end. What is not UTF-8 in the text is replaced.
std::string LogLineJson(const LogLine& line);

// DataLoss if `json` is no JSON object. A part that is missing is empty.
absl::StatusOr<LogLine> ParseLogLine(std::string_view json);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_WORKER_LOG_LINE_H_
