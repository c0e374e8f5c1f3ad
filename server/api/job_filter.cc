#include "server/api/job_filter.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/base/error_reason.h"

namespace megatrain {
namespace {

constexpr size_t kFilterBytesMax = 4096;

enum class Field { kState, kReason, kUser, kDisplayName };

struct Comparison {
  Field field = Field::kState;
  bool equal = true;  // else !=
  JobState state = JobState::kQueued;
  JobReason reason = JobReason::kNone;
  std::string text;

  bool Matches(const Job& job) const {
    switch (field) {
      case Field::kState:
        return (job.state == state) == equal;
      case Field::kReason:
        return (job.reason == reason) == equal;
      case Field::kUser:
        return (job.user == text) == equal;
      case Field::kDisplayName:
        return (job.display_name == text) == equal;
    }
    return false;
  }
};

// OR binds tighter than AND: all of the groups, any of a group's comparisons.
using AnyOf = std::vector<Comparison>;
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

std::optional<Field> ParseField(const Token& token) {
  if (token.Is("state")) return Field::kState;
  if (token.Is("reason")) return Field::kReason;
  if (token.Is("user")) return Field::kUser;
  if (token.Is("display_name")) return Field::kDisplayName;
  return std::nullopt;
}

absl::StatusOr<Comparison> ParseComparison(const std::vector<Token>& tokens, size_t at) {
  if (at + 2 >= tokens.size()) return Invalid("ends in the middle of a comparison");
  const Token& name = tokens[at];
  const Token& comparator = tokens[at + 1];
  const Token& value = tokens[at + 2];
  Comparison comparison;
  const std::optional<Field> field = ParseField(name);
  if (!field.has_value()) {
    return Invalid(absl::StrCat("there is no field ", name.text,
                                "; there are state, reason, user and display_name"));
  }
  comparison.field = *field;
  if (!comparator.Is("=") && !comparator.Is("!=")) {
    return Invalid(absl::StrCat("after ", name.text, " expects = or !=, got ", comparator.text));
  }
  comparison.equal = comparator.text == "=";
  if (value.Is("=") || value.Is("!=")) {
    return Invalid(absl::StrCat("after ", name.text, " ", comparator.text, " expects a value"));
  }
  if (*field == Field::kState) {
    const std::optional<JobState> state = ParseJobState(value.text);
    if (!state.has_value()) {
      std::string known;
      for (const JobState each : AllJobStates()) {
        absl::StrAppend(&known, known.empty() ? "" : ", ", JobStateName(each));
      }
      return Invalid(absl::StrCat("there is no state ", value.text, "; there are ", known));
    }
    comparison.state = *state;
  } else if (*field == Field::kReason) {
    const std::optional<JobReason> reason =
        value.text == "REASON_UNSPECIFIED" ? JobReason::kNone : ParseJobReason(value.text);
    if (!reason.has_value()) return Invalid(absl::StrCat("there is no reason ", value.text));
    comparison.reason = *reason;
  } else {
    comparison.text = value.text;
  }
  return comparison;
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
    MT_ASSIGN_OR_RETURN(Comparison comparison, ParseComparison(tokens, at));
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
    for (const AnyOf& group : groups) {
      bool any = false;
      for (const Comparison& comparison : group) any = any || comparison.Matches(job);
      if (!any) return false;
    }
    return true;
  });
}

}  // namespace megatrain
