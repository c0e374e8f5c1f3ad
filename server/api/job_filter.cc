#include "server/api/job_filter.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"
#include "server/base/error_reason.h"

namespace megatrain {
namespace {

constexpr size_t kFilterBytesMax = 4096;
constexpr const char* kFields[] = {"state", "reason", "user", "display_name"};

// OR binds tighter than AND: all of the groups, any of a group's comparisons.
using AnyOf = std::vector<JobFilter>;
using AllOf = std::vector<AnyOf>;

absl::Status Invalid(const std::string& message) {
  return WithReason(absl::InvalidArgumentError(absl::StrCat("filter: ", message)),
                    v1::INVALID_FILTER, {{"field", "filter"}});
}

struct Token {
  std::string text;  // a word, "=", "!=", or what stood in quotes
  bool quoted = false;
  bool Is(std::string_view word) const { return !quoted && text == word; }
};

bool IsWordCharacter(char c) {
  return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.' || c == '@' ||
         static_cast<unsigned char>(c) >= 0x80;
}

absl::StatusOr<std::vector<Token>> Tokenize(const std::string& text) {
  std::vector<Token> tokens;
  size_t i = 0;
  while (i < text.size()) {
    const char c = text[i];
    if (absl::ascii_isspace(c)) {
      ++i;
    } else if (c == '=') {
      tokens.push_back({"=", false});
      ++i;
    } else if (c == '!' && i + 1 < text.size() && text[i + 1] == '=') {
      tokens.push_back({"!=", false});
      i += 2;
    } else if (c == '"' || c == '\'') {
      Token token{"", true};
      for (++i; i < text.size() && text[i] != c; ++i) {
        if (text[i] == '\\' && i + 1 < text.size()) ++i;
        token.text += text[i];
      }
      if (i == text.size()) return Invalid("a quote is not closed");
      ++i;
      tokens.push_back(std::move(token));
    } else if (IsWordCharacter(c)) {
      Token token;
      for (; i < text.size() && IsWordCharacter(text[i]); ++i) token.text += text[i];
      tokens.push_back(std::move(token));
    } else {
      return Invalid(absl::StrCat("\"", absl::ascii_isprint(c) ? std::string(1, c) : "?",
                                  "\" at byte ", i,
                                  " is not understood; comparisons are FIELD = VALUE or "
                                  "FIELD != VALUE, joined by AND and OR"));
    }
  }
  return tokens;
}

// Returns the comparison of `field` of a job with `value`, or of the two being different.
template <class Value>
JobFilter Compare(Value Job::*field, Value value, bool equal) {
  return [=](const Job& job) { return (job.*field == value) == equal; };
}

absl::StatusOr<JobFilter> ParseComparison(const std::vector<Token>& tokens, size_t at) {
  if (at + 2 >= tokens.size()) return Invalid("ends in the middle of a comparison");
  const Token& name = tokens[at];
  const Token& comparator = tokens[at + 1];
  const Token& value = tokens[at + 2];
  const auto is_name = [&name](const char* field) { return name.Is(field); };
  if (!absl::c_any_of(kFields, is_name)) {
    return Invalid(absl::StrCat("there is no field ", name.text,
                                "; there are state, reason, user and display_name"));
  }
  if (!comparator.Is("=") && !comparator.Is("!=")) {
    return Invalid(absl::StrCat("after ", name.text, " expects = or !=, got ", comparator.text));
  }
  const bool equal = comparator.text == "=";
  if (value.Is("=") || value.Is("!=")) {
    return Invalid(absl::StrCat("after ", name.text, " ", comparator.text, " expects a value"));
  }
  if (name.text == "state") {
    const std::optional<JobState> state = ParseJobState(value.text);
    if (state.has_value()) return Compare(&Job::state, *state, equal);
    const auto append = [](std::string* out, JobState each) { *out += JobStateName(each); };
    return Invalid(absl::StrCat("there is no state ", value.text, "; there are ",
                                absl::StrJoin(AllJobStates(), ", ", append)));
  }
  if (name.text == "reason") {
    const std::optional<JobReason> reason =
        value.text == "REASON_UNSPECIFIED" ? JobReason::kNone : ParseJobReason(value.text);
    if (reason.has_value()) return Compare(&Job::reason, *reason, equal);
    return Invalid(absl::StrCat("there is no reason ", value.text));
  }
  return Compare(name.text == "user" ? &Job::user : &Job::display_name, value.text, equal);
}

}  // namespace

absl::StatusOr<JobFilter> ParseJobFilter(const std::string& text) {
  if (text.size() > kFilterBytesMax) {
    return Invalid(absl::StrCat("is ", text.size(), " bytes long; at most ", kFilterBytesMax));
  }
  MT_ASSIGN_OR_RETURN(const std::vector<Token> tokens, Tokenize(text));
  if (tokens.empty()) return JobFilter();
  AllOf groups(1);
  for (size_t at = 0;;) {
    MT_ASSIGN_OR_RETURN(JobFilter comparison, ParseComparison(tokens, at));
    groups.back().push_back(std::move(comparison));
    at += 3;
    if (at == tokens.size()) break;
    if (tokens[at].Is("AND")) {
      groups.emplace_back();
    } else if (!tokens[at].Is("OR")) {
      return Invalid(absl::StrCat("after a comparison expects AND or OR, got ", tokens[at].text));
    }
    ++at;
  }
  return JobFilter([groups = std::move(groups)](const Job& job) {
    return absl::c_all_of(groups, [&job](const AnyOf& group) {
      return absl::c_any_of(group, [&job](const JobFilter& matches) { return matches(job); });
    });
  });
}

}  // namespace megatrain
