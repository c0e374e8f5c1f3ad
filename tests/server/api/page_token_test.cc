#include "server/api/page_token.h"

#include <limits>
#include <string>

#include "gtest/gtest.h"
#include "server/base/error_reason.h"

namespace megatrain {
namespace {

TEST(PageTokenTest, ReadsBackWhatItMade) {
  for (const int64_t after : {int64_t{1}, int64_t{77}, std::numeric_limits<int64_t>::max()}) {
    const std::string token = MakePageToken(after, "desc state = RUNNING");
    EXPECT_EQ(token.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                      "0123456789-_="),
              std::string::npos)
        << token;
    EXPECT_EQ(ReadPageToken(token, "desc state = RUNNING").value(), after);
  }
}

TEST(PageTokenTest, EmptyIsTheFirstPage) { EXPECT_EQ(ReadPageToken("", "x").value(), 0); }

TEST(PageTokenTest, BelongsToItsQuestion) {
  const std::string token = MakePageToken(5, "desc ");
  EXPECT_FALSE(ReadPageToken(token, "asc ").ok());
}

TEST(PageTokenTest, OthersAreRefused) {
  const std::string token = MakePageToken(5, "q");
  std::string changed = token;
  changed[0] = changed[0] == 'A' ? 'B' : 'A';
  for (const std::string& text :
       {std::string("x"), std::string("5"), std::string("!!!!"), changed, token + "AAAA",
        token.substr(1), std::string(100000, 'A'), std::string("\0\0", 2),
        // What a caller may make that knows how: no entry has such a key.
        MakePageToken(0, "q"), MakePageToken(-5, "q")}) {
    const auto after = ReadPageToken(text, "q");
    ASSERT_EQ(after.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(ReasonOf(after.status())->reason, "INVALID_PAGE_TOKEN");
  }
}

}  // namespace
}  // namespace megatrain
