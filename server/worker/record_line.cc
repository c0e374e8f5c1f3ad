#include "server/worker/record_line.h"

#include <xxhash.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace megatrain {
namespace {

constexpr size_t kHashDigits = 16;

std::string HashText(std::string_view rest) {
  return absl::StrFormat("%016x", XXH3_64bits(rest.data(), rest.size()));
}

// The digits up to the next ' ', which is taken too.
bool TakeNumber(std::string_view* rest, int64_t* value) {
  const size_t end = rest->find(' ');
  if (end == std::string_view::npos) return false;
  const bool number = absl::SimpleAtoi(absl::string_view(rest->data(), end), value);
  rest->remove_prefix(end + 1);
  return number && *value >= 0;
}

}  // namespace

std::string FormatRecordLine(const RecordLine& line) {
  std::string rest =
      absl::StrCat(" ", std::string(1, line.kind), " ", line.sequence, " ", line.step, " ");
  rest.append(line.text);
  return absl::StrCat(HashText(rest), rest, "\n");
}

std::optional<RecordLine> ParseRecordLine(std::string_view line) {
  // The shortest: checksum, " t 1 0 ".
  if (line.size() < kHashDigits + 7) return std::nullopt;
  std::string_view rest = line.substr(kHashDigits);
  if (line.substr(0, kHashDigits) != HashText(rest)) return std::nullopt;
  RecordLine parsed;
  parsed.kind = rest[1];
  rest.remove_prefix(3);
  if (!TakeNumber(&rest, &parsed.sequence) || !TakeNumber(&rest, &parsed.step)) {
    return std::nullopt;
  }
  if (parsed.sequence == 0 || (parsed.kind != 't' && parsed.kind != 'f')) return std::nullopt;
  parsed.text = rest;
  return parsed;
}

}  // namespace megatrain
