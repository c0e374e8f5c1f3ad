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

// Returns the line as JSON without a line end. Bytes of the text that are not UTF-8 are replaced.
std::string LogLineJson(const LogLine& line);

// Reads a line of LogLineJson. DataLoss if `json` is no JSON object. A key that is missing or no
// text gives an empty field.
absl::StatusOr<LogLine> ParseLogLine(std::string_view json);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_WORKER_LOG_LINE_H_
