// A second account on a shared daemon with roots, from its first job to its limits: what it may do
// with its own, what belongs to it, and that a third one sees nothing of it.
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/e2e/users_fixture.h"
#include "tests/support/child_process.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Two accounts that every Debian has.
constexpr char kAnna[] = "daemon";
constexpr char kBert[] = "bin";

class SharedDaemonTest : public UsersTest {
 protected:
  void SetUp() override {
    UsersTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (access("/usr/bin/setpriv", X_OK) != 0) GTEST_SKIP() << "setpriv is missing";
    if (getpwnam(kAnna) == nullptr || getpwnam(kBert) == nullptr) {
      GTEST_SKIP() << "there are no accounts " << kAnna << " and " << kBert;
    }
    for (const char* user : {kAnna, kBert}) MakeHome(user);
    fs::create_directory(directory_ / "run");
    ASSERT_EQ(chmod((directory_ / "run").c_str(), 0755), 0);
    // A checkpoint of the model has 12 MB.
    StartDaemon({"listen=[\"unix:" + Socket() + "\"]", "limits.queued_jobs_per_user=2",
                 "limits.disk_per_user=60MiB", "host_memory=512MiB"});
    struct stat info = {};
    ASSERT_EQ(stat(Socket().c_str(), &info), 0);
    socket_group_ = info.st_gid;
  }

  std::string Socket() const { return (directory_ / "run/m.sock").string(); }
  fs::path Home(const std::string& user) const { return directory_ / (user + "-home"); }
  // A place of the user's own, with the job's files, that nobody else may enter.
  void MakeHome(const std::string& user) {
    const passwd account = *getpwnam(user.c_str());
    const fs::path home = Home(user);
    fs::create_directory(home);
    fs::copy(directory_ / "model", home / "model", fs::copy_options::recursive);
    fs::copy_file(directory_ / "train.txt", home / "train.txt");
    std::ofstream(home / "job.yaml")
        << "name: secret\nmodel: {path: model}\n"
        << "data:\n  train: [{path: train.txt, format: text}]\n  sequence_length: 64\n"
        << "  tokenizer: bytes\n"
        << "training: {steps: 100000, global_batch: 4, micro_batch: 2, eval_every: 0}\n"
        << "checkpoint: {every_steps: 5, keep: 2}\nengine: {threads: 1}\n";
    ASSERT_EQ(chown(home.c_str(), account.pw_uid, account.pw_gid), 0);
    for (const auto& entry : fs::recursive_directory_iterator(home)) {
      ASSERT_EQ(chown(entry.path().c_str(), account.pw_uid, account.pw_gid), 0);
    }
    ASSERT_EQ(chmod(home.c_str(), 0700), 0);
  }

  // The exit code of `megatrain` as `user`, a member of the socket's group.
  int As(const std::string& user, std::vector<std::string> arguments, std::string* output) {
    arguments.insert(arguments.begin(), {"/usr/bin/setpriv", "--reuid=" + user, "--regid=" + user,
                                         "--groups=" + std::to_string(socket_group_),
                                         client_binary_, "--server", "unix:" + Socket()});
    ChildProcess client(arguments, directory_ / "user.log");
    const int code = client.Wait();
    *output = client.Output();
    return code;
  }
  std::string AsOk(const std::string& user, const std::vector<std::string>& arguments) {
    std::string output;
    EXPECT_EQ(As(user, arguments, &output), 0) << output;
    return output;
  }
  // "jobs/ID".
  std::string Submit(const std::string& user, const std::vector<std::string>& settings = {}) {
    std::vector<std::string> arguments = {"submit", Home(user) / "job.yaml", "-q"};
    for (const std::string& setting : settings) {
      arguments.insert(arguments.end(), {"--set", setting});
    }
    const std::string output = AsOk(user, arguments);
    return output.substr(0, output.find('\n'));
  }
  fs::path OwnDirectory(const std::string& job) const {
    return directory_ / "state" / "jobs" / job.substr(job.rfind('/') + 1);
  }
  bool HasCheckpoint(const std::string& job) const {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(OwnDirectory(job) / "checkpoints", ignored)) {
      const std::string name = entry.path().filename();
      if (name.rfind("step-", 0) == 0 && name.find('.') == std::string::npos) return true;
    }
    return false;
  }
  // All beneath `directory`, itself included, is the user's, and nobody's else to read or write.
  void ExpectBelongsTo(const std::string& user, const fs::path& directory) {
    const uid_t uid = getpwnam(user.c_str())->pw_uid;
    std::vector<fs::path> paths = {directory};
    for (const auto& entry : fs::recursive_directory_iterator(directory)) {
      paths.push_back(entry.path());
    }
    EXPECT_GT(paths.size(), 2u) << directory;
    for (const fs::path& path : paths) {
      struct stat info = {};
      if (lstat(path.c_str(), &info) != 0) continue;  // replaced meanwhile
      EXPECT_EQ(info.st_uid, uid) << path;
      EXPECT_EQ(info.st_mode & 07777, S_ISDIR(info.st_mode) ? 0750u : 0640u) << path;
    }
  }

  gid_t socket_group_ = 0;
};

TEST_F(SharedDaemonTest, FromTheFirstJobToItsEnd) {
  const std::string job = Submit(kAnna);
  WaitUntil([&] { return HasCheckpoint(job); });
  EXPECT_THAT(AsOk(kAnna, {"show", job}), AllOf(HasSubstr("secret"), HasSubstr(kAnna)));

  // A third account: that the node is busy, and no more.
  std::string output;
  EXPECT_EQ(AsOk(kBert, {"ls", "--all", "-q"}), "");
  EXPECT_THAT(AsOk(kBert, {"info", "-o", "json"}),
              AllOf(HasSubstr("\"running\": 1"), Not(HasSubstr("secret"))));
  for (const std::vector<std::string>& call :
       std::vector<std::vector<std::string>>{{"show", job},
                                             {"watch", job},
                                             {"logs", job},
                                             {"metrics", job},
                                             {"cancel", job},
                                             {"checkpoints", job},
                                             {"delete", job, "--yes"},
                                             {"export", job, "--out", Home(kBert) / "stolen"}}) {
    EXPECT_EQ(As(kBert, call, &output), kNotFound) << call[0] << ": " << output;
  }
  // What is the first one's to read is not the daemon's to read for another.
  EXPECT_EQ(As(kBert,
               {"submit", Home(kBert) / "job.yaml", "--set",
                "model.path=" + (Home(kAnna) / "model").string()},
               &output),
            kNotPermitted)
      << output;
  EXPECT_THAT(output, HasSubstr("model.path"));
  EXPECT_EQ(As(kBert,
               {"submit", Home(kBert) / "job.yaml", "--set",
                "output.directory=" + (Home(kAnna) / "out").string()},
               &output),
            kNotPermitted)
      << output;

  // A job is deleted when it has ended, and all that the daemon kept goes with it.
  EXPECT_EQ(As(kAnna, {"delete", job, "--yes"}, &output), kUsage) << output;
  AsOk(kAnna, {"cancel", job});
  EXPECT_EQ(As(kAnna, {"wait", job}, &output), 1) << output;
  ExpectBelongsTo(kAnna, OwnDirectory(job) / "checkpoints");
  EXPECT_EQ(As(kBert, {"delete", job, "--yes"}, &output), kNotFound) << output;
  AsOk(kAnna, {"delete", job, "--yes"});
  EXPECT_EQ(As(kAnna, {"show", job}, &output), kNotFound) << output;
  WaitUntil([&] { return !fs::exists(OwnDirectory(job)); });
}

TEST_F(SharedDaemonTest, WhatAJobWritesElsewhereBelongsToItsSubmitterToo) {
  const std::string job =
      Submit(kAnna, {"training.steps=3", "output.directory=trained", "checkpoint.directory=saved"});
  std::string output;
  ASSERT_EQ(As(kAnna, {"wait", job}, &output), 0) << output << AsOk(kAnna, {"logs", job});
  ExpectBelongsTo(kAnna, Home(kAnna) / "trained");
  ExpectBelongsTo(kAnna, Home(kAnna) / "saved");
  AsOk(kAnna, {"export", job, "--out", Home(kAnna) / "exported"});
  ExpectBelongsTo(kAnna, Home(kAnna) / "exported");
  // Deleting it leaves them alone.
  AsOk(kAnna, {"delete", job, "--yes"});
  WaitUntil([&] { return !fs::exists(OwnDirectory(job)); });
  EXPECT_TRUE(fs::exists(Home(kAnna) / "trained/config.json"));
  EXPECT_TRUE(fs::exists(Home(kAnna) / "saved/step-00000003/manifest.json"));
}

TEST_F(SharedDaemonTest, LimitsOnDiskAreOfEachUser) {
  const fs::path file = Home(kAnna) / "job.yaml";
  std::string output;
  // Never: ten checkpoints are more than a user may have. The plan says so beforehand.
  for (const char* command : {"plan", "submit"}) {
    EXPECT_EQ(As(kAnna, {command, file, "--set", "checkpoint.keep=9"}, &output), kDoesNotFit)
        << output;
    EXPECT_THAT(output, HasSubstr("limits.disk_per_user")) << command;
  }
  // Not beside the first.
  const std::string job = Submit(kAnna);
  EXPECT_EQ(As(kAnna, {"submit", file}, &output), kNotPermitted) << output;
  EXPECT_THAT(output, AllOf(HasSubstr("limits.disk_per_user"), HasSubstr("megatrain delete JOB")));
  EXPECT_EQ(As(kAnna, {"plan", file}, &output), 0) << output;
  EXPECT_THAT(output, HasSubstr("a submit would be refused now: "));
  EXPECT_THAT(AsOk(kAnna, {"plan", file, "-o", "json"}),
              AllOf(HasSubstr("\"LIMIT_REACHED\""), HasSubstr("\"limits.disk_per_user\"")));
  EXPECT_THAT(AsOk(kBert, {"plan", Home(kBert) / "job.yaml"}),
              Not(HasSubstr("a submit would be refused")));
  // Deleted, it makes room.
  AsOk(kAnna, {"cancel", job});
  EXPECT_EQ(As(kAnna, {"wait", job}, &output), 1) << output;
  AsOk(kAnna, {"delete", job, "--yes"});
  WaitUntil([&] { return As(kAnna, {"submit", file, "-q"}, &output) == 0; });
}

TEST_F(SharedDaemonTest, LimitsOnTheQueueAreOfEachUser) {
  const auto own = [](int number) {
    return std::vector<std::string>{"checkpoint.directory=saved" + std::to_string(number)};
  };
  Submit(kAnna, own(0));
  // It leaves the queue for the device.
  WaitUntil([&] {
    return AsOk(kBert, {"info", "-o", "json"}).find("\"running\": 1") != std::string::npos;
  });
  Submit(kAnna, own(1));
  const std::string last = Submit(kAnna, own(2));
  std::string output;
  const std::vector<std::string> more = {"submit", Home(kAnna) / "job.yaml", "--set", own(3)[0]};
  EXPECT_EQ(As(kAnna, more, &output), kNotPermitted) << output;
  EXPECT_THAT(output, AllOf(HasSubstr("limits.queued_jobs_per_user"), HasSubstr("cancel")));
  Submit(kBert);
  AsOk(kAnna, {"cancel", last});
  EXPECT_EQ(As(kAnna, more, &output), 0) << output;
}

}  // namespace
}  // namespace megatrain
