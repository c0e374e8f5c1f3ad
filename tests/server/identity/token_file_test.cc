#include "server/identity/token_file.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

constexpr char kId[] = "0123456789abcdef";
const char* const kHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

class TokenFileTest : public testing::Test {
 protected:
  void Write(const std::string& text, mode_t mode = 0600) {
    std::ofstream(path_) << text;
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }
  absl::Status Add(const std::string& user) {
    const NewToken token = MakeToken(user, absl::Now(), absl::InfiniteFuture()).value();
    return EditTokenFile(path_, [&](std::vector<StoredToken>* tokens) {
      tokens->push_back(token.stored);
      return absl::OkStatus();
    });
  }

  const TestDirectory directory_;
  const std::string path_ = directory_ / "tokens";
};

TEST_F(TokenFileTest, ATokenIsKnownByItsHashAlone) {
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000) + absl::Milliseconds(1);
  const NewToken token = MakeToken("anna", now, now + absl::Hours(1)).value();
  EXPECT_EQ(token.text.size(), 3u + 16 + 1 + 64);
  EXPECT_EQ(token.stored.created, absl::FromUnixSeconds(1'700'000'000));
  EXPECT_EQ(token.stored.expires, absl::FromUnixSeconds(1'700'003'600));
  const TokenParts parts = ParseToken(token.text).value();
  EXPECT_EQ(parts.id, token.stored.id);
  EXPECT_EQ(parts.hash, token.stored.hash);
  const std::string file = FormatTokenFile({token.stored});
  EXPECT_FALSE(absl::StrContains(file, token.text.substr(20)));
  EXPECT_EQ(ParseTokenFile(file, "f").value(), std::vector<StoredToken>{token.stored});
  EXPECT_NE(MakeToken("anna", now, now)->text, token.text);
}

TEST_F(TokenFileTest, WhatIsNotATokenIsNotParsed) {
  const std::string good = MakeToken("anna", absl::Now(), absl::InfiniteFuture())->text;
  EXPECT_TRUE(ParseToken(good).ok());
  for (size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_FALSE(ParseToken(good.substr(0, bytes)).ok()) << bytes;
  }
  std::string upper = good;
  upper.back() = 'A';
  std::string no_digit = good;
  no_digit.back() = 'g';
  for (const std::string& text :
       {good + "0", good + "_0", " " + good, upper, no_digit, "mtl_" + good, "MT_" + good.substr(3),
        good.substr(0, 19) + "-" + good.substr(20), std::string(100000, '_')}) {
    EXPECT_FALSE(ParseToken(text).ok()) << text;
  }
}

TEST_F(TokenFileTest, MalformedFilesAreRefusedWithTheirLine) {
  const std::string line = absl::StrCat(kId, " ", kHash, " anna 2025-01-31T12:00:00Z never\n");
  EXPECT_EQ(ParseTokenFile("# comment\n\n" + line, "f")->size(), 1u);
  const std::string cases[][2] = {
      {"nonsense\n", "f:1: expects ID SHA256 USER CREATED EXPIRES, got 1 fields"},
      {"\n" + line + line, "f:3: the ID 0123456789abcdef is there twice"},
      {absl::StrCat("x", line), "f:1: the ID is not"},
      {absl::StrCat(kId, " ", kId, " anna 2025-01-31T12:00:00Z never"), "f:1: the hash is not"},
      {absl::StrCat(kId, " ", kHash, " anna yesterday never"), "f:1: created: expects a time"},
      {absl::StrCat(kId, " ", kHash, " anna 2025-01-31T12:00:00Z soon"),
       "f:1: expires: expects a time"},
      {absl::StrCat(kId, " ", kHash, " anna 2025-01-31T12:00:00Z never more"), "got 6 fields"},
      {std::string(1, '\0'), "f:1: expects"},
  };
  for (const auto& [text, message] : cases) {
    const absl::Status status = ParseTokenFile(text, "f").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message));
  }
}

TEST_F(TokenFileTest, AFileThatOthersMayReadIsRefused) {
  for (const mode_t mode : {0640, 0604, 0620, 0666}) {
    Write("", mode);
    EXPECT_THAT(std::string(ReadTokenFile(path_).status().message()), HasSubstr("chmod 0600"));
    EXPECT_FALSE(Add("anna").ok());
  }
  Write("", 0400);
  EXPECT_TRUE(ReadTokenFile(path_).ok());
}

TEST_F(TokenFileTest, WhatIsNoFileIsRefused) {
  EXPECT_TRUE(absl::IsNotFound(ReadTokenFile(path_).status()));
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(ReadTokenFile(path_).status())) << "and does not wait";
  EXPECT_TRUE(absl::IsInvalidArgument(ReadTokenFile(directory_.path()).status()));
}

TEST_F(TokenFileTest, AFileThatIsTooLongIsNotRead) {
  Write("");
  std::filesystem::resize_file(path_, (16 << 20) + 1);
  EXPECT_THAT(std::string(ReadTokenFile(path_).status().message()), HasSubstr("are allowed"));
  std::filesystem::resize_file(path_, 16 << 20);
  EXPECT_THAT(std::string(ReadTokenFile(path_).status().message()), HasSubstr(":1: expects ID"));
}

TEST_F(TokenFileTest, EditingReplacesItAsAWhole) {
  ASSERT_TRUE(Add("anna").ok());
  struct stat info = {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600u);
  const ino_t first = info.st_ino;
  ASSERT_TRUE(Add("bob").ok());
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_NE(info.st_ino, first);
  const std::vector<StoredToken> tokens = ReadTokenFile(path_).value();
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[0].user, "anna");
  EXPECT_EQ(tokens[1].user, "bob");
  const absl::Status status = EditTokenFile(path_, [](std::vector<StoredToken>* edited) {
    edited->clear();
    return absl::NotFoundError("changed my mind");
  });
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_EQ(ReadTokenFile(path_)->size(), 2u);
}

TEST_F(TokenFileTest, AnEditorThatDiedIsNoHindrance) {
  std::ofstream(path_ + ".tmp") << "half";
  ASSERT_TRUE(Add("anna").ok());
  EXPECT_FALSE(std::filesystem::exists(path_ + ".tmp"));
}

TEST_F(TokenFileTest, EditorsTakeTurns) {
  std::vector<std::thread> editors;
  for (int i = 0; i < 4; ++i) {
    editors.emplace_back([this] {
      for (int j = 0; j < 10; ++j) EXPECT_TRUE(Add("anna").ok());
    });
  }
  for (std::thread& editor : editors) editor.join();
  EXPECT_EQ(ReadTokenFile(path_)->size(), 40u);
}

TEST_F(TokenFileTest, RootWritesForTheOwnerOfTheDirectory) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can write for others";
  ASSERT_EQ(chown(directory_.path().c_str(), 2, 2), 0);
  ASSERT_TRUE(Add("anna").ok());
  struct stat info = {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 2u);
  ASSERT_EQ(chown(path_.c_str(), 3, 3), 0);
  ASSERT_TRUE(Add("anna").ok());
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 3u) << "and keeps the owner of a file that is there";
}

// Whoever owns the file could make tokens for anyone.
TEST_F(TokenFileTest, AFileOfAnotherUserIsRefusedUnlessThatIsRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  Write("");
  // By a thread of user 2 that a capability lets read the file all the same. Bare system calls
  // change the calling thread alone.
  const auto read_as_user = [this] {
    absl::Status status = absl::UnknownError("not read");
    std::thread([&] {
      ASSERT_EQ(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0), 0);
      ASSERT_EQ(syscall(SYS_setresuid, 2, 2, 2), 0);
      __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
      __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
      data[0].permitted = data[0].effective = 1u << CAP_DAC_OVERRIDE;
      ASSERT_EQ(syscall(SYS_capset, &header, data), 0);
      status = ReadTokenFile(path_).status();
    }).join();
    return status;
  };
  EXPECT_TRUE(read_as_user().ok()) << read_as_user();
  ASSERT_EQ(chown(path_.c_str(), 2, 2), 0);
  EXPECT_TRUE(read_as_user().ok()) << "its own";
  ASSERT_EQ(chown(path_.c_str(), 3, 3), 0);
  const absl::Status refused = read_as_user();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("belongs to user 3"));
  EXPECT_TRUE(ReadTokenFile(path_).ok()) << "root reads that of any owner";
}

}  // namespace
}  // namespace megatrain
