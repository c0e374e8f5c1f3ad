#include "server/worker/record_format.h"

#include <xxhash.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace megatrain {
namespace {

constexpr int kNameDigits = 20;
constexpr int kHashDigits = 16;
// The shortest line: "HASH t 1 0 ".
constexpr size_t kLineBytesMin = kHashDigits + 7;

std::string LineHash(std::string_view rest) {
  return absl::StrFormat("%0*x", kHashDigits, XXH3_64bits(rest.data(), rest.size()));
}

// Reads a number and the ' ' after it, and removes both from *rest.
bool ConsumeNumber(std::string_view* rest, int64_t* value) {
  const size_t end = rest->find(' ');
  if (end == std::string_view::npos) return false;
  const bool number = absl::SimpleAtoi(absl::string_view(rest->data(), end), value);
  rest->remove_prefix(end + 1);
  return number && *value >= 0;
}

}  // namespace

std::string SegmentName(int64_t sequence) {
  return absl::StrFormat("%0*d.log", kNameDigits, sequence);
}

std::optional<int64_t> ParseSegmentName(const std::string& name) {
  int64_t sequence = 0;
  if (!absl::SimpleAtoi(name.substr(0, kNameDigits), &sequence) || sequence < 1 ||
      name != SegmentName(sequence)) {
    return std::nullopt;
  }
  return sequence;
}

std::string EncodeRecord(LogRecord::Kind kind, int64_t sequence, int64_t step,
                         std::string_view text) {
  std::string rest =
      absl::StrCat(" ", std::string(1, static_cast<char>(kind)), " ", sequence, " ", step, " ");
  rest.append(text);
  return absl::StrCat(LineHash(rest), rest, "\n");
}

std::optional<LogRecord> DecodeRecord(std::string_view line) {
  if (line.size() < kLineBytesMin) return std::nullopt;
  std::string_view rest = line.substr(kHashDigits);
  if (line.substr(0, kHashDigits) != LineHash(rest)) return std::nullopt;
  LogRecord record;
  record.kind = static_cast<LogRecord::Kind>(rest[1]);
  rest.remove_prefix(3);
  if (!ConsumeNumber(&rest, &record.sequence) || !ConsumeNumber(&rest, &record.step) ||
      record.sequence == 0) {
    return std::nullopt;
  }
  if (record.kind != LogRecord::Kind::kText && record.kind != LogRecord::Kind::kFellBack) {
    return std::nullopt;
  }
  record.text = rest;
  return record;
}

}  // namespace megatrain
