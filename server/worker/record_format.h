// The format of a record log on disk. Logs of every version are read, so the format may be extended
// but not changed.
//
// A log is a directory of segments. A segment is a file named by the sequence number of its first
// record, 20 digits and ".log". It consists of lines, one a record:
//
//   HASH ' ' KIND ' ' SEQUENCE ' ' STEP ' ' TEXT '\n'
//
//   HASH      XXH3-64 of everything after it up to the '\n', 16 lower-case hexadecimal digits
//   KIND      one character: LogRecord::Kind
//   SEQUENCE  decimal, 1 or more, greater than that of the line before
//   STEP      decimal, 0 or more
//   TEXT      any bytes but '\n'
//
// The hash tells a whole line from one that a killed process, a power cut or a full disk has torn.
#ifndef MEGATRAIN_SERVER_WORKER_RECORD_FORMAT_H_
#define MEGATRAIN_SERVER_WORKER_RECORD_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace megatrain {

struct LogRecord {
  enum class Kind : char {
    kText = 't',
    kFellBack = 'f',  // records before this one of steps after `step` are superseded; no text
  };
  Kind kind = Kind::kText;
  int64_t sequence = 0;
  int64_t step = 0;  // 0: before the first step
  std::string text;
  bool superseded = false;  // not in the file: see RecordLog::Reader
};

// The name of the segment whose first record is `sequence`, without its directory.
std::string SegmentName(int64_t sequence);
// Returns nullopt for a name that SegmentName does not make.
std::optional<int64_t> ParseSegmentName(const std::string& name);

// Returns the line with its '\n'. REQUIRES: `text` holds no '\n'.
std::string EncodeRecord(LogRecord::Kind kind, int64_t sequence, int64_t step,
                         std::string_view text);
// Reads a line without its '\n'. Returns nullopt if its hash or its form is wrong.
std::optional<LogRecord> DecodeRecord(std::string_view line);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_WORKER_RECORD_FORMAT_H_
