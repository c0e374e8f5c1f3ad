// Acting for another account; needs root, and is skipped without.
#include "server/files/file_identity.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pwd.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <iterator>
#include <string>
#include <thread>

#include "engine/base/descriptor.h"
#include "engine/base/file.h"
#include "server/files/rooted_file_system.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

using ::testing::Contains;
using ::testing::HasSubstr;

std::vector<gid_t> GroupsOfThread() {
  std::vector<gid_t> groups(static_cast<size_t>(::syscall(SYS_getgroups, 0, nullptr)));
  ::syscall(SYS_getgroups, groups.size(), groups.data());
  return groups;
}
uid_t FileUser() { return static_cast<uid_t>(::setfsuid(static_cast<uid_t>(-1))); }

TEST(FileIdentityTest, LooksAccountsUp) {
  const auto own = LookUpIdentity(::geteuid());
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_EQ(own->uid, ::geteuid());
  EXPECT_THAT(own->groups, Contains(own->gid));
  for (const int64_t uid : {int64_t{-1}, int64_t{3999999999}, int64_t{1} << 40}) {
    EXPECT_TRUE(absl::IsNotFound(LookUpIdentity(uid).status())) << uid;
  }
}

TEST(FileIdentityTest, NothingIsSwitchedForNobody) {
  const uid_t before = FileUser();
  const ScopedIdentity as(nullptr);
  EXPECT_TRUE(as.status().ok());
  EXPECT_EQ(FileUser(), before);
}

class OtherAccountTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!MissingCapabilities().empty()) {
      GTEST_SKIP() << "acting for another account needs root: " << MissingCapabilities();
    }
    const passwd* const entry = ::getpwnam("nobody");
    if (entry == nullptr) GTEST_SKIP() << "there is no account nobody";
    nobody_ = *LookUpIdentity(entry->pw_uid);
    ASSERT_EQ(::chmod(directory_.c_str(), 0755), 0);
    for (const char* name : {"private", "shared", "theirs"}) {
      fs::create_directory(directory_ + "/" + name);
      std::ofstream(directory_ + "/" + name + "/file") << "content";
    }
    ASSERT_EQ(::chmod((directory_ + "/private").c_str(), 0700), 0);
    ASSERT_EQ(::chmod((directory_ + "/shared/file").c_str(), 0600), 0);
    ASSERT_EQ(::chown((directory_ + "/theirs").c_str(), nobody_.uid, nobody_.gid), 0);
    files_ = std::make_unique<RootedFileSystem>(
        RootedFileSystem::Roots{*RootDirectory::Open(directory_)}, nobody_);
  }
  static struct stat StatOf(const std::string& path) {
    struct stat info = {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0) << path;
    return info;
  }

  FileIdentity nobody_;
  const TestDirectory own_{TestDirectory::Place::kShort};
  const std::string directory_ = own_.path();
  std::unique_ptr<RootedFileSystem> files_;
};

TEST_F(OtherAccountTest, OneThreadIsSwitchedAndSwitchedBack) {
  const std::vector<gid_t> groups = GroupsOfThread();
  const std::string secret = directory_ + "/private/file";
  // Begun before: a thread has from the first what its maker has.
  std::promise<void> switched;
  std::thread other([&] {
    switched.get_future().wait();
    EXPECT_EQ(FileUser(), ::geteuid());
    EXPECT_EQ(GroupsOfThread(), groups);
    EXPECT_TRUE(Descriptor(::open(secret.c_str(), O_RDONLY)).is_open());
  });
  {
    const ScopedIdentity as(&nobody_);
    EXPECT_TRUE(as.status().ok()) << as.status();
    EXPECT_EQ(FileUser(), nobody_.uid);
    EXPECT_EQ(GroupsOfThread(), nobody_.groups);
    EXPECT_FALSE(Descriptor(::open(secret.c_str(), O_RDONLY)).is_open());
    switched.set_value();
    other.join();
  }
  EXPECT_EQ(FileUser(), ::geteuid());
  EXPECT_EQ(GroupsOfThread(), groups);
  EXPECT_TRUE(Descriptor(::open(secret.c_str(), O_RDONLY)).is_open());
}

TEST_F(OtherAccountTest, TheAccountZeroOverridesNothing) {
  ASSERT_EQ(::chmod((directory_ + "/theirs").c_str(), 0700), 0);
  FileIdentity root = *LookUpIdentity(0);
  const ScopedIdentity as(&root);
  ASSERT_TRUE(as.status().ok()) << as.status();
  EXPECT_LT(::open((directory_ + "/theirs/file").c_str(), O_RDONLY), 0);
  const Descriptor own(::open((directory_ + "/private/file").c_str(), O_RDONLY));
  EXPECT_TRUE(own.is_open());
}

TEST_F(OtherAccountTest, TheAccountZeroChangesNoModesOfOthers) {
  const std::string theirs = directory_ + "/theirs";
  const FileIdentity root = *LookUpIdentity(0);
  int changed = 0, error = 0;
  {
    const ScopedIdentity as(&root);
    ASSERT_TRUE(as.status().ok()) << as.status();
    changed = ::chmod(theirs.c_str(), 0777);
    error = errno;
  }
  EXPECT_LT(changed, 0);
  EXPECT_EQ(error, EPERM);
  EXPECT_EQ(::chmod(theirs.c_str(), 0700), 0) << "the daemon has its own rights again";
}

// On a thread that is what the service is: `nobody` with three capabilities, and where `filtered`
// with a filter that refuses capset. Raw system calls change the calling thread alone.
void AsService(const FileIdentity& nobody, bool filtered, const std::function<void()>& body) {
  std::thread([&] {
    ASSERT_EQ(::prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0), 0);
    ASSERT_EQ(::syscall(SYS_setresgid, nobody.gid, nobody.gid, nobody.gid), 0);
    ASSERT_EQ(::syscall(SYS_setresuid, nobody.uid, nobody.uid, nobody.uid), 0);
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
    data[0].permitted = data[0].effective = 1u << CAP_CHOWN | 1u << CAP_SETUID | 1u << CAP_SETGID;
    ASSERT_EQ(::syscall(SYS_capset, &header, data), 0);
    if (filtered) {
      sock_filter program[] = {
          BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_capset, 0, 1),
          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      };
      const sock_fprog filter = {static_cast<unsigned short>(std::size(program)), program};
      ASSERT_EQ(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
      ASSERT_EQ(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
    }
    body();
  }).join();
}

TEST_F(OtherAccountTest, AServiceCeasesToBeTheAccountZeroWithWhatItHad) {
  AsService(nobody_, /*filtered=*/false, [this] {
    const FileIdentity root = *LookUpIdentity(0);
    for (int i = 0; i < 2; ++i) {
      const ScopedIdentity as(&root);
      EXPECT_TRUE(as.status().ok()) << as.status();
      EXPECT_TRUE(Descriptor(::open((directory_ + "/private/file").c_str(), O_RDONLY)).is_open());
    }
    EXPECT_EQ(FileUser(), nobody_.uid);
    EXPECT_EQ(MissingCapabilities(), "");
  });
}

TEST_F(OtherAccountTest, AServiceThatMayNotSetCapabilitiesDoesNotBecomeTheAccountZero) {
  AsService(nobody_, /*filtered=*/true, [this] {
    const FileIdentity root = *LookUpIdentity(0);
    const ScopedIdentity as(&root);
    EXPECT_TRUE(absl::IsPermissionDenied(as.status())) << as.status();
    EXPECT_THAT(std::string(as.status().message()), HasSubstr("capset"));
    EXPECT_EQ(FileUser(), nobody_.uid);
    EXPECT_EQ(MissingCapabilities(), "");
  });
}

TEST_F(OtherAccountTest, ReadsWhatTheAccountMayRead) {
  EXPECT_EQ(*ReadWholeFile(files_.get(), directory_ + "/theirs/file", 100), "content");
  const auto unreadable = files_->OpenForReading(directory_ + "/shared/file");
  EXPECT_TRUE(absl::IsPermissionDenied(unreadable.status())) << unreadable.status();
  // Whether there is something or nothing beneath a directory that may not be entered cannot be
  // told.
  std::string there(files_->OpenForReading(directory_ + "/private/file").status().message());
  std::string none(files_->OpenForReading(directory_ + "/private/none").status().message());
  EXPECT_THAT(there, HasSubstr("Permission denied"));
  EXPECT_EQ(there.replace(there.find("/file"), 5, "/none"), none);
  EXPECT_EQ(files_->Examine(directory_ + "/private/file").status().code(),
            files_->Examine(directory_ + "/private/none").status().code());
  EXPECT_FALSE(files_->FileExists(directory_ + "/private/file"));
}

TEST_F(OtherAccountTest, WritesWhereTheAccountMayAndItOwnsWhatItMakes) {
  const std::string theirs = directory_ + "/theirs";
  EXPECT_TRUE(files_->CheckWritable(theirs + "/new/below").ok());
  ASSERT_TRUE(files_->CreateDirectories(theirs + "/new/below").ok());
  ASSERT_TRUE(AtomicWriteFile(files_.get(), theirs + "/new/file", "x").ok());
  EXPECT_NE(*files_->TryLock(theirs + "/new/.lock"), nullptr);
  for (const char* name : {"/new", "/new/below", "/new/file", "/new/.lock"}) {
    EXPECT_EQ(StatOf(theirs + name).st_uid, nobody_.uid) << name;
    EXPECT_EQ(StatOf(theirs + name).st_gid, nobody_.gid) << name;
  }
  EXPECT_TRUE(files_->RemoveTree(theirs + "/new").ok());

  for (const char* name : {"/shared", "/private"}) {
    const std::string path = directory_ + name;
    for (const absl::Status& status :
         {files_->NewWritableFile(path + "/new").status(), files_->CreateDirectories(path + "/new"),
          files_->CheckWritable(path + "/new"), files_->TryLock(path + "/file").status(),
          files_->Rename(path + "/file", path + "/new"), files_->RemoveFile(path + "/file"),
          files_->RemoveTree(path + "/file")}) {
      EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
    }
    EXPECT_TRUE(fs::exists(path + "/file"));
  }
}

TEST_F(OtherAccountTest, NothingCanBeMadeWhereTheAccountMayNotEnter) {
  ASSERT_EQ(::chmod((directory_ + "/theirs").c_str(), 0600), 0);
  const absl::Status status = files_->CheckWritable(directory_ + "/theirs");
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
}

TEST_F(OtherAccountTest, AnOpenFileNeedsNoSwitch) {
  auto file = files_->NewWritableFile(directory_ + "/theirs/new");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(FileUser(), ::geteuid());
  EXPECT_TRUE((*file)->Append("abc", 3).ok());
  EXPECT_TRUE((*file)->Sync().ok());
  EXPECT_TRUE((*file)->Close().ok());
}

}  // namespace
}  // namespace megatrain
