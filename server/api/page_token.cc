#include "server/api/page_token.h"

#include <xxhash.h>

#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "server/base/error_reason.h"

namespace megatrain {
namespace {

// A token's bytes before base64. The check is no secret: a forged token shows nothing that its
// caller may not see, since every job in a page is checked.
struct Token {
  int64_t after = 0;
  uint64_t check = 0;
};

uint64_t Check(int64_t after, const std::string& question) {
  return XXH3_64bits_withSeed(question.data(), question.size(), static_cast<uint64_t>(after));
}

}  // namespace

std::string MakePageToken(int64_t after, const std::string& question) {
  const Token token = {after, Check(after, question)};
  return absl::WebSafeBase64Escape(
      std::string(reinterpret_cast<const char*>(&token), sizeof(token)));
}

absl::StatusOr<int64_t> ReadPageToken(const std::string& text, const std::string& question) {
  if (text.empty()) return 0;
  Token token;
  std::string bytes;
  if (absl::WebSafeBase64Unescape(text, &bytes) && bytes.size() == sizeof(token)) {
    std::memcpy(&token, bytes.data(), sizeof(token));
    if (token.after > 0 && token.check == Check(token.after, question)) return token.after;
  }
  return WithReason(
      absl::InvalidArgumentError("page_token: not a token of this list; a token goes with the "
                                 "filter and order_by that it was made for"),
      v1::INVALID_PAGE_TOKEN);
}

}  // namespace megatrain
