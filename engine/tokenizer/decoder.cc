#include "engine/tokenizer/decoder.h"

#include <algorithm>

#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engine/tokenizer/model/byte_token.h"
#include "engine/tokenizer/model/byte_unicode.h"
#include "engine/tokenizer/text/text_map.h"
#include "engine/tokenizer/text/utf8.h"

namespace megatrain {
namespace {

// A token of bytes may be a part of a character. Its text is not well-formed then.
bool IsWellFormed(const std::string& token) { return Utf8ValidPrefix(token) == token.size(); }

void JoinBytes(std::vector<std::string>* tokens) {
  std::string text, bytes;
  for (const std::string& token : *tokens) {
    text += IsWellFormed(token) && TokenToBytes(token, &bytes) ? bytes : token;
  }
  tokens->assign(1, std::move(text));
}

// Neighbouring byte tokens become one token.
void JoinByteTokens(std::vector<std::string>* tokens) {
  std::vector<std::string> out;
  bool in_bytes = false;
  for (std::string& token : *tokens) {
    const int byte = ByteOfToken(token);
    if (byte < 0) {
      out.push_back(std::move(token));
    } else if (in_bytes) {
      out.back().push_back(static_cast<char>(byte));
    } else {
      out.emplace_back(1, static_cast<char>(byte));
    }
    in_bytes = byte >= 0;
  }
  *tokens = std::move(out);
}

void StripToken(std::string_view content, size_t start, size_t stop, std::string* token) {
  std::string_view left = *token;
  for (size_t i = 0; i < start && left.substr(0, content.size()) == content; ++i) {
    left.remove_prefix(content.size());
  }
  for (size_t i = 0; i < stop && left.size() >= content.size() &&
                     left.substr(left.size() - content.size()) == content;
       ++i) {
    left.remove_suffix(content.size());
  }
  *token = std::string(left);
}

// Steps that each make a token longer must not fill the memory together.
constexpr size_t kGrownBytesMax = size_t{1} << 20;

void ReplaceMatches(const SplitRegex& regex, std::string_view to, std::string* token) {
  if (!IsWellFormed(*token)) return;
  std::string out;
  size_t done = 0;
  // A match that gives up, and one beyond the limit, leaves the rest as it is.
  regex
      .ForEachMatch(*token,
                    [&](size_t begin, size_t end) {
                      if (out.size() + to.size() > std::max(token->size(), kGrownBytesMax)) return;
                      out.append(*token, done, begin - done);
                      out += to;
                      done = end;
                    })
      .IgnoreError();
  out.append(*token, done);
  *token = std::move(out);
}

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  if (from.empty()) return std::string(text);
  return absl::StrReplaceAll(ToAbsl(text), {{ToAbsl(from), ToAbsl(to)}});
}

// WordPiece's clean-up, in this order.
void CleanUp(std::string* token) {
  static constexpr const char* kPairs[][2] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& [from, to] : kPairs) *token = ReplaceAll(*token, from, to);
}

}  // namespace

Decoder::Step* Decoder::Add(Kind kind) {
  joins_without_spaces_ = true;
  steps_.emplace_back();
  steps_.back().kind = kind;
  return &steps_.back();
}

void Decoder::AddStrip(std::string_view content, size_t start, size_t stop) {
  Step* const step = Add(Kind::kStrip);
  step->from = content;
  step->start = start;
  step->stop = stop;
}

void Decoder::AddReplace(std::unique_ptr<SplitRegex> from, std::string_view to) {
  Step* const step = Add(Kind::kReplace);
  step->regex = std::move(from);
  step->to = to;
}

void Decoder::AddMetaspace(std::string_view mark, bool prepends) {
  Step* const step = Add(Kind::kMetaspace);
  step->from = mark;
  step->flag = prepends;
}

void Decoder::AddWordPiece(std::string_view prefix, bool cleanup) {
  Step* const step = Add(Kind::kWordPiece);
  step->from = prefix;
  step->flag = cleanup;
}

void Decoder::AddSuffix(std::string_view suffix) { Add(Kind::kSuffix)->from = suffix; }

void Decoder::Apply(const Step& step, std::vector<std::string>* tokens) {
  for (size_t i = 0; i < tokens->size(); ++i) {
    std::string& token = (*tokens)[i];
    switch (step.kind) {
      case Kind::kStrip:
        StripToken(step.from, step.start, step.stop, &token);
        break;
      case Kind::kReplace:
        ReplaceMatches(*step.regex, step.to, &token);
        break;
      case Kind::kMetaspace:
        token = ReplaceAll(token, step.from, i == 0 && step.flag ? "" : " ");
        break;
      case Kind::kSuffix:
        token = ReplaceAll(token, step.from, i + 1 == tokens->size() ? "" : " ");
        break;
      case Kind::kWordPiece:
        if (i > 0 && token.compare(0, step.from.size(), step.from) == 0) {
          token.erase(0, step.from.size());
        } else if (i > 0) {
          token.insert(0, 1, ' ');
        }
        if (step.flag) CleanUp(&token);
        break;
      default:
        break;
    }
  }
  if (step.kind == Kind::kByteLevel) JoinBytes(tokens);
  if (step.kind == Kind::kByteFallback) JoinByteTokens(tokens);
  if (step.kind == Kind::kFuse) tokens->assign(1, absl::StrJoin(*tokens, ""));
}

std::string Decoder::Decode(std::vector<std::string> tokens) const {
  for (const Step& step : steps_) Apply(step, &tokens);
  return absl::StrJoin(tokens, joins_without_spaces_ ? "" : " ");
}

}  // namespace megatrain
