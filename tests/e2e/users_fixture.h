// A daemon that several users share, and what each of them calls: the parts that its tests have in
// common. Only root's daemon may act for other accounts; the tests skip elsewhere.
#ifndef MEGATRAIN_TESTS_E2E_USERS_FIXTURE_H_
#define MEGATRAIN_TESTS_E2E_USERS_FIXTURE_H_

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/child_process.h"
#include "tests/support/test_directory.h"
#include "tests/support/wait_until.h"

namespace megatrain {

// Of `megatrain`.
inline constexpr int kUsage = 2;
inline constexpr int kDoesNotFit = 3;
inline constexpr int kNotFound = 4;
inline constexpr int kNotPermitted = 5;
inline constexpr int kUnreachable = 6;

class UsersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root's daemon may act for other accounts";
    // Other users may look in.
    ASSERT_EQ(chmod(directory_.c_str(), 0755), 0);
    for (const char* name : {"MEGATRAIN_SERVER", "MEGATRAIN_TOKEN", "MEGATRAIN_CA"}) unsetenv(name);
    // Where other users may run it.
    daemon_binary_ = directory_ / "megatraind";
    client_binary_ = directory_ / "megatrain";
    std::filesystem::copy_file("server/megatraind", daemon_binary_);
    std::filesystem::copy_file("client/megatrain", client_binary_);
    ASSERT_EQ(chmod(daemon_binary_.c_str(), 0755), 0);
    ASSERT_EQ(chmod(client_binary_.c_str(), 0755), 0);
    ChildProcess init(
        {daemon_binary_, "init", "--preset", "llama-tiny", "--out", directory_ / "model"},
        directory_ / "init.log");
    ASSERT_EQ(init.Wait(), 0) << init.Output();
    std::string text;
    for (int i = 0; i < 500; ++i) text += "the host holds a model and the device one layer\n";
    std::ofstream(directory_ / "train.txt") << text;
    std::ofstream(directory_ / "job.yaml")
        << "name: secret\nmodel: {path: " << (directory_ / "model").string()
        << "}\ndata:\n  train: [{path: " << (directory_ / "train.txt").string()
        << ", format: text}]\n  sequence_length: 64\n  tokenizer: bytes\n"
        << "training: {steps: 100000, global_batch: 4, micro_batch: 2}\n"
        << "checkpoint: {every_steps: 10}\nengine: {threads: 1}\n";
  }
  void TearDown() override {
    if (HasFailure() && daemon_ != nullptr) std::fputs(daemon_->Output().c_str(), stderr);
    daemon_.reset();
  }

  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(directory_ / name) << text;
    EXPECT_EQ(chmod((directory_ / name).c_str(), 0600), 0);
    return directory_ / name;
  }
  // Until it listens. Its addresses, as it says them.
  std::string StartDaemon(const std::vector<std::string>& settings) {
    std::vector<std::string> arguments = {daemon_binary_, "serve"};
    for (const std::string& setting :
         {"state_directory=" + (directory_ / "state").string(), std::string("device=cpu"),
          std::string("host_memory=256MiB"), std::string("threads=1"),
          std::string("metrics_listen="), "roots=[" + directory_.string() + "]"}) {
      arguments.insert(arguments.end(), {"--set", setting});
    }
    for (const std::string& setting : settings) {
      arguments.insert(arguments.end(), {"--set", setting});
    }
    std::filesystem::remove(directory_ / "daemon.log");  // what is read in it is of this life
    daemon_ = std::make_unique<ChildProcess>(arguments, directory_ / "daemon.log");
    WaitUntil([this] { return daemon_->Output().find("megatraind: ready") != std::string::npos; });
    const std::string log = daemon_->Output(), start = "listening on ";
    const size_t begin = log.find(start) + start.size();
    return log.substr(begin, log.find(';', begin) - begin);
  }
  void WaitUntil(const std::function<bool()>& condition) {
    ASSERT_TRUE(megatrain::WaitUntil(condition, [this] { return !daemon_->Running(); }))
        << daemon_->Output();
  }
  // A user's contexts are in a directory of that name. The exit code; `*output` has standard output
  // and error.
  int Run(const std::string& user, std::vector<std::string> arguments,
          std::string* output = nullptr) {
    setenv("XDG_CONFIG_HOME", (directory_ / user).c_str(), 1);
    arguments.insert(arguments.begin(), client_binary_);
    ChildProcess client(arguments, directory_ / "client.log");
    const int code = client.Wait();
    if (output != nullptr) *output = client.Output();
    return code;
  }
  std::string Output(const std::string& user, const std::vector<std::string>& arguments) {
    std::string output;
    EXPECT_EQ(Run(user, arguments, &output), 0) << output;
    return output;
  }
  // What a command of the daemon's program prints on standard output, its last line.
  std::string DaemonCommand(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), daemon_binary_);
    ChildProcess command(arguments, directory_ / "command.log");
    EXPECT_EQ(command.Wait(), 0) << command.Output();
    std::string text = command.Output();
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.substr(text.rfind('\n') + 1);
  }

  const TestDirectory own_{TestDirectory::Place::kShort};
  const std::filesystem::path directory_ = own_.path();
  std::string daemon_binary_, client_binary_;
  std::unique_ptr<ChildProcess> daemon_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_E2E_USERS_FIXTURE_H_
