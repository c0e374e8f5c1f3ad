#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <map>
#include <string>

#include "client/context/invocation.h"
#include "tests/support/test_directory.h"

namespace megatrain::client {
namespace {

using ::testing::HasSubstr;

class ServerChoiceTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(chmod(file_.c_str(), 0600), 0);
    Context context;
    context.server = "node7:1";
    context.files.token = file_;
    Contexts contexts;
    ASSERT_TRUE(AddContext("far", context, &contexts).ok());
    ASSERT_TRUE(WriteContexts(*Program().ContextsPath(), contexts).ok());
  }
  Invocation Program() {
    Environment environment;
    environment.variable = [this](const char* name) { return variables_[name]; };
    return Invocation(std::move(environment));
  }
  // Returns what calls carry, or the error.
  std::string Authorization() {
    const auto connection = Program().Connect();
    if (!connection.ok()) return std::string(connection.status().message());
    return (*connection)->Authorization().value_or("none");
  }

  const TestDirectory directory_;
  const std::string file_ = directory_.Write("token", "mt_file\n");
  std::map<std::string, std::string> variables_ = {{"HOME", directory_.path()}};
};

TEST_F(ServerChoiceTest, TheTokenOfTheEnvironmentReplacesTheContexts) {
  EXPECT_EQ(Authorization(), "Bearer mt_file");
  variables_["MEGATRAIN_TOKEN"] = "mt_own";
  EXPECT_EQ(Authorization(), "Bearer mt_own");
  // Whatever has become of the context's file.
  ASSERT_EQ(chmod(file_.c_str(), 0644), 0);
  EXPECT_EQ(Authorization(), "Bearer mt_own");
  std::filesystem::remove(file_);
  EXPECT_EQ(Authorization(), "Bearer mt_own");
  variables_["MEGATRAIN_TOKEN"] = "no token";
  EXPECT_EQ(Authorization(), "MEGATRAIN_TOKEN: is not a token");
  variables_.erase("MEGATRAIN_TOKEN");
  EXPECT_THAT(Authorization(), HasSubstr("cannot read " + file_));
}

// Else whoever names another server would hand it the token of the context's.
TEST_F(ServerChoiceTest, WhatAContextHasIsForItsServerOnly) {
  Invocation program = Program();
  program.server = "node8:1";
  const auto named = program.Connect();
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ((*named)->address().text, "node8:1");
  EXPECT_THAT((*named)->Authorization().status().message(), HasSubstr("there is no token"));
  variables_["MEGATRAIN_SERVER"] = "node9:1";
  EXPECT_EQ(Authorization(), "none");
  EXPECT_EQ(program.Server()->text, "node8:1") << "--server comes first";
  variables_["MEGATRAIN_TOKEN"] = "mt_own";
  EXPECT_EQ(Authorization(), "Bearer mt_own");
  // A Unix socket does not get the user's own token, be it one or not.
  variables_["MEGATRAIN_SERVER"] = "unix:/nonexistent/m.sock";
  for (const char* const token : {"mt_own", "no token"}) {
    variables_["MEGATRAIN_TOKEN"] = token;
    EXPECT_EQ(Authorization(), "none");
  }
}

TEST_F(ServerChoiceTest, TheAuthorityOfTheEnvironmentReplacesTheContexts) {
  variables_["MEGATRAIN_CA"] = directory_ / "other.pem";
  EXPECT_THAT(Authorization(), HasSubstr("cannot read " + (directory_ / "other.pem")));
}

TEST_F(ServerChoiceTest, WithoutAHomeThereIsTheUsualServer) {
  variables_["HOME"] = "";
  EXPECT_TRUE(absl::IsInvalidArgument(Program().ContextsPath().status()));
  EXPECT_EQ(Program().Server()->text, kDefaultServer);
}

TEST_F(ServerChoiceTest, AConfigurationDirectoryThatIsRelativeIsIgnored) {
  const std::string of_home = *Program().ContextsPath();
  variables_["XDG_CONFIG_HOME"] = "config";
  EXPECT_EQ(*Program().ContextsPath(), of_home);
  variables_["XDG_CONFIG_HOME"] = directory_ / "config";
  EXPECT_EQ(*Program().ContextsPath(), directory_ / "config/megatrain/contexts.json");
}

}  // namespace
}  // namespace megatrain::client
