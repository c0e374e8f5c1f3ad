#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/client/commands/program_fixture.h"
#include "tests/client/connection/token_socket.h"

namespace megatrain::client {
namespace {

using ::testing::HasSubstr;

class TokenCommandTest : public ProgramTest {};

TEST_F(TokenCommandTest, OnTcpItIsTheUsersOwn) {
  variables_["MEGATRAIN_SERVER"] = "node7:1";
  variables_["MEGATRAIN_TOKEN"] = "mt_own";
  const Result result = Run({"token"});
  EXPECT_EQ(result.code, kExitDone) << result.err;
  EXPECT_EQ(result.out, "Bearer mt_own\n");
  EXPECT_EQ(Json({"token"})["authorization"], "Bearer mt_own");
  variables_.erase("MEGATRAIN_TOKEN");
  const Result none = Run({"token"});
  EXPECT_EQ(none.code, kExitUsage);
  EXPECT_EQ(none.out, "");
  EXPECT_THAT(none.err, HasSubstr("MEGATRAIN_TOKEN"));
}

TEST_F(TokenCommandTest, OnASharedSocketItIsTheDaemons) {
  const TokenSocket tokens(directory_.path() + "/m.sock.auth");
  variables_["MEGATRAIN_TOKEN"] = "mt_own";
  EXPECT_EQ(Run({"token"}).out, "Bearer t1\n");
}

TEST_F(TokenCommandTest, OnAPrivateSocketThereIsNone) {
  const Result none = Run({"token"});
  EXPECT_EQ(none.code, kExitUsage);
  EXPECT_THAT(none.err, HasSubstr("its socket is private"));
}

}  // namespace
}  // namespace megatrain::client
