#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>

#include "tests/client/commands/program_fixture.h"

namespace megatrain::client {
namespace {

using ::testing::HasSubstr;

class ContextCommandsTest : public ProgramTest {
 protected:
  // Returns the path of a file that only its owner may read.
  std::string Secret(const std::string& name) {
    const std::string path = directory_.path() + "/" + name;
    std::ofstream(path) << "mt_1\n";
    EXPECT_EQ(chmod(path.c_str(), 0600), 0);
    return path;
  }
};

TEST_F(ContextCommandsTest, EachFileIsKeptAsWhatItIs) {
  const std::string ca = Secret("ca"), certificate = Secret("certificate"), key = Secret("key"),
                    token = Secret("token");
  EXPECT_THAT(Run({"context", "ls"}).err, HasSubstr("no contexts"));
  EXPECT_EQ(Run({"context", "add", "near", "unix:/run/m.sock"}).out,
            "the current context is near, unix:/run/m.sock\n");
  const Result added = Run({"context", "add", "far", "node7:1", "--ca", ca, "--certificate",
                            certificate, "--key", key, "--token-file", token, "-q"});
  EXPECT_EQ(added.code, kExitDone) << added.err;
  EXPECT_EQ(added.out, "");
  EXPECT_EQ(Run({"context", "ls", "-q"}).out, "far\nnear\n");
  const nlohmann::json far = Json({"context", "ls"})[0];
  EXPECT_EQ(far["name"], "far");
  EXPECT_EQ(far["server"], "node7:1");
  EXPECT_EQ(far["current"], false);
  EXPECT_EQ(far["ca"], ca);
  EXPECT_EQ(far["certificate"], certificate);
  EXPECT_EQ(far["key"], key);
  EXPECT_EQ(far["token_file"], token);
  const Result other = Run({"context", "add", "far", "node8:1"});
  EXPECT_EQ(other.code, kExitUsage);
  EXPECT_THAT(other.err, HasSubstr("context far is there already, for node7:1"));
}

}  // namespace
}  // namespace megatrain::client
