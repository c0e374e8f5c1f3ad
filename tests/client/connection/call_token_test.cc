#include "client/connection/call_token.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "client/connection/server_address.h"
#include "tests/client/connection/token_socket.h"
#include "tests/support/test_directory.h"

namespace megatrain::client {
namespace {

class CallTokenTest : public ::testing::Test {
 protected:
  const TestDirectory directory_{TestDirectory::Place::kShort};
  const std::string companion_ = directory_ / "m.sock.auth";
  // The user's own token is for TCP only.
  CallToken token_{*ParseServerAddress("unix:" + (directory_ / "m.sock")), "mt_own"};
};

TEST_F(CallTokenTest, OneIsFetchedAndKept) {
  const TokenSocket socket(companion_);
  EXPECT_EQ(token_.Get(), "t1");
  EXPECT_EQ(token_.Get(), "t1");
  EXPECT_TRUE(token_.problem().ok()) << token_.problem();
}

TEST_F(CallTokenTest, OneWhoseTimeIsOverIsReplaced) {
  const TokenSocket socket(companion_, [](int number) {
    return absl::StrCat("{\"token\": \"t", number, "\", \"lifetime_seconds\": 0}");
  });
  EXPECT_EQ(token_.Get(), "t1");
  EXPECT_EQ(token_.Get(), "t2");
}

TEST_F(CallTokenTest, ARefusedOneIsReplacedOnceForAllThatCarriedIt) {
  const TokenSocket socket(companion_);
  EXPECT_EQ(token_.Get(), "t1");
  EXPECT_TRUE(token_.Renew("t1"));
  EXPECT_EQ(token_.Get(), "t2");
  EXPECT_TRUE(token_.Renew("t1")) << "of another call";
  EXPECT_EQ(token_.Get(), "t2");
}

TEST_F(CallTokenTest, TheSameOneAgainIsNoNewOne) {
  const TokenSocket socket(companion_, [](int) { return NumberedToken(7); });
  EXPECT_EQ(token_.Get(), "t7");
  EXPECT_FALSE(token_.Renew("t7"));
}

TEST_F(CallTokenTest, APrivateSocketNeedsNone) {
  EXPECT_EQ(token_.Get(), "");
  EXPECT_TRUE(token_.problem().ok()) << token_.problem();
  EXPECT_FALSE(token_.Renew(""));
  // Another daemon may be there by now, but it is not asked before every call.
  const TokenSocket socket(companion_);
  EXPECT_EQ(token_.Get(), "");
  EXPECT_TRUE(token_.Renew(""));
  EXPECT_EQ(token_.Get(), "t1");
}

TEST_F(CallTokenTest, WhyThereIsNoneIsKept) {
  const TokenSocket socket(companion_, [](int) { return "{\"error\": \"no account of yours\"}"; });
  EXPECT_EQ(token_.Get(), "");
  const absl::Status problem = token_.problem();
  EXPECT_TRUE(absl::IsUnauthenticated(problem)) << problem;
  EXPECT_EQ(problem.message(), "no account of yours");
  EXPECT_FALSE(token_.Renew(""));
}

TEST_F(CallTokenTest, OnTcpItIsTheUsersOwn) {
  CallToken token(*ParseServerAddress("node7:1"), "mt_own");
  EXPECT_EQ(token.Get(), "mt_own");
  EXPECT_FALSE(token.Renew("mt_own"));
  EXPECT_FALSE(token.Renew("mt_other"));
}

}  // namespace
}  // namespace megatrain::client
