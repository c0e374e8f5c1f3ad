#include "client/context/context_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace megatrain::client {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

Context Server(const std::string& address) { return {address, {}}; }

class ContextStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(directory_);
    path_ = directory_ / "config/megatrain/contexts.json";
  }
  absl::Status ReadText(const std::string& text) {
    fs::create_directories(path_.parent_path());
    std::ofstream(path_) << text;
    return ReadContexts(path_).status();
  }

  const fs::path directory_ = fs::path(::testing::TempDir()) / "context_store_test";
  fs::path path_;
};

TEST_F(ContextStoreTest, NoFileIsNoContexts) {
  const auto contexts = ReadContexts(path_);
  ASSERT_TRUE(contexts.ok()) << contexts.status();
  EXPECT_EQ(*contexts, Contexts());
}

TEST_F(ContextStoreTest, WhatIsWrittenIsReadAgain) {
  Contexts contexts;
  ASSERT_TRUE(AddContext("lab", Server("unix:/run/lab.sock"), &contexts).ok());
  ASSERT_TRUE(AddContext("far", Server("node7:9463"), &contexts).ok());
  EXPECT_EQ(contexts.current, "lab") << "the first one is the current one";
  ASSERT_TRUE(UseContext("far", &contexts).ok());
  ASSERT_TRUE(WriteContexts(path_, contexts).ok());
  EXPECT_EQ(*ReadContexts(path_), contexts);
  struct stat info = {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(fs::directory_iterator(path_.parent_path()), fs::directory_iterator()), 1)
      << "nothing else is left there";
}

TEST_F(ContextStoreTest, AddingTwiceAndWrongNames) {
  Contexts contexts;
  ASSERT_TRUE(AddContext("lab", Server("node7:1"), &contexts).ok());
  EXPECT_TRUE(AddContext("lab", Server("node7:1"), &contexts).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(AddContext("lab", Server("node8:1"), &contexts)));
  EXPECT_TRUE(absl::IsInvalidArgument(AddContext("a b", Server("node8:1"), &contexts)));
  EXPECT_TRUE(absl::IsInvalidArgument(AddContext("", Server("node8:1"), &contexts)));
  EXPECT_TRUE(AddContext(std::string(64, 'n'), Server("node8:1"), &contexts).ok());
  EXPECT_TRUE(
      absl::IsInvalidArgument(AddContext(std::string(65, 'n'), Server("node8:1"), &contexts)));
  EXPECT_TRUE(absl::IsInvalidArgument(AddContext("x", Server("node8"), &contexts)));
  const absl::Status status = UseContext("nope", &contexts);
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(status.message(), HasSubstr("there are lab"));
}

TEST_F(ContextStoreTest, CredentialsAreFilesThatCanBeUsed) {
  fs::create_directories(directory_);
  const auto write = [&](const std::string& name, const std::string& text, mode_t mode) {
    std::ofstream(directory_ / name) << text;
    EXPECT_EQ(chmod((directory_ / name).c_str(), mode), 0);
    return (directory_ / name).string();
  };
  const std::string ca = write("ca.pem", "x", 0644), token = write("token", "mt_1\n", 0600),
                    open = write("open", "mt_1\n", 0640), bad = write("bad", "a b", 0600),
                    empty = write("empty", "", 0600);
  Contexts contexts;
  Context far{"node7:1", {ca, "", "", token}};
  ASSERT_TRUE(AddContext("far", far, &contexts).ok());
  ASSERT_TRUE(WriteContexts(path_, contexts).ok());
  EXPECT_EQ(*ReadContexts(path_), contexts);
  EXPECT_EQ(ReadContexts(path_)->contexts.at("far"), far);
  EXPECT_EQ(ReadCredentials(far.files)->token, "mt_1");
  EXPECT_TRUE(absl::IsAlreadyExists(AddContext("far", {"node7:1", {}}, &contexts)));
  const fs::path before = fs::current_path();
  fs::current_path(directory_);
  EXPECT_TRUE(AddContext("here", {"node7:1", {"./ca.pem", "", "", ""}}, &contexts).ok());
  EXPECT_EQ(contexts.contexts["here"].files.ca, fs::current_path() / "ca.pem");
  fs::current_path(before);

  const std::string fifo = directory_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  const std::pair<CredentialFiles, const char*> cases[] = {
      {{directory_ / "none", "", "", ""}, "none: No such file"},
      {{directory_, "", "", ""}, "is not a regular file"},
      {{"", "", "", fifo}, "is not a regular file"},
      {{empty, "", "", ""}, "is empty"},
      {{"", ca, "", ""}, "belong together"},
      {{"", "", token, ""}, "belong together"},
      {{"", ca, open, ""}, "chmod 0600"},
      {{"", "", "", open}, "chmod 0600"},
      {{"", "", "", bad}, "is not a token"},
  };
  for (const auto& [files, message] : cases) {
    const absl::Status status = AddContext("other", {"node7:1", files}, &contexts);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << message;
    EXPECT_THAT(status.message(), HasSubstr(message));
  }
  EXPECT_THAT(AddContext("near", {"unix:/m.sock", {ca, "", "", ""}}, &contexts).message(),
              HasSubstr("are for HOST:PORT"));
}

TEST_F(ContextStoreTest, EachCredentialIsReadFromItsFile) {
  fs::create_directories(directory_);
  const auto write = [&](const std::string& name, mode_t mode) {
    std::ofstream(directory_ / name) << "the " << name;
    EXPECT_EQ(chmod((directory_ / name).c_str(), mode), 0);
    return (directory_ / name).string();
  };
  CredentialFiles files;
  files.ca = write("authority", 0644);
  files.certificate = write("certificate", 0644);
  files.key = write("key", 0600);
  const auto credentials = ReadCredentials(files);
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  EXPECT_EQ(credentials->ca, "the authority");
  EXPECT_EQ(credentials->certificate, "the certificate");
  EXPECT_EQ(credentials->key, "the key");
  EXPECT_EQ(credentials->token, "");
}

TEST_F(ContextStoreTest, WhatIsNotUnderstoodIsRefusedByName) {
  for (const char* const text :
       {"", "[]", "{\"current\": 1}", "{\"contexts\": {\"a\": {}}}", "{\"other\": {}}",
        "{\"current\": \"a\"}",
        "{\"contexts\": {\"a\": {\"server\": \"x:1\", \"token\": \"mt_1\"}}}",
        "{\"contexts\": {\"a\": {\"server\": \"x:1\", \"ca\": 1}}}",
        "{\"contexts\": {\"a\": {\"ca\": \"/f\"}}}"}) {
    const absl::Status status = ReadText(text);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(status.message(), HasSubstr("contexts.json")) << text;
  }
}

TEST_F(ContextStoreTest, WhatCannotBeWrittenNamesTheFile) {
  fs::create_directories(path_);
  const absl::Status status = WriteContexts(path_, Contexts());
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(status.message(), HasSubstr("contexts.json"));
  EXPECT_EQ(std::distance(fs::directory_iterator(path_.parent_path()), fs::directory_iterator()), 1)
      << "nothing else is left there";
}

}  // namespace
}  // namespace megatrain::client
