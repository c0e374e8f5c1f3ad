// How `megatraind serve` starts, or why it does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/e2e/daemon_process.h"
#include "tests/support/read_file.h"
#include "tests/support/test_directory.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class ServeStartTest : public ::testing::Test {
 protected:
  ServeStartTest() {
    options_.binary = fs::absolute("server/megatraind").string();
    options_.directory = own_ / "d";
    fs::create_directory(options_.directory);
    fs::permissions(options_.directory, fs::perms::owner_all);
  }

  // Starts a daemon that ends by itself. Returns its exit code, and its output in output_.
  int ExitCodeWith(const std::vector<std::string>& settings) {
    DaemonProcess::Options options = options_;
    options.settings = settings;
    const auto daemon = DaemonProcess::Launch(options);
    const int code = daemon->process().Wait();
    output_ = daemon->process().Output();
    return code;
  }

  const TestDirectory own_{TestDirectory::Place::kShort};
  DaemonProcess::Options options_;
  std::string output_;
};

TEST_F(ServeStartTest, WrongConfigurationsAndTooMuchMemoryAreRefused) {
  EXPECT_EQ(ExitCodeWith({"host_memry=1GiB"}), 2);
  EXPECT_THAT(output_, HasSubstr("did you mean host_memory?"));

  options_.config = own_ / "none.yaml";
  EXPECT_EQ(ExitCodeWith({}), 2);
  options_.config.clear();

  fs::permissions(options_.directory, fs::perms::owner_all | fs::perms::others_write);
  EXPECT_EQ(ExitCodeWith({}), 2);
  EXPECT_THAT(output_, HasSubstr("0700"));
  fs::permissions(options_.directory, fs::perms::owner_all);

  const std::string large = own_ / "large.pem";
  std::ofstream(large).put('\n');
  fs::resize_file(large, 2 << 20);
  EXPECT_EQ(ExitCodeWith({"listen=[\"127.0.0.1:0\"]", "tls.certificate=" + large,
                          "tls.key=" + large, "tokens_file=" + large}),
            2)
      << output_;
  EXPECT_THAT(output_, HasSubstr("large.pem has 2097152 bytes"));

  EXPECT_EQ(ExitCodeWith({"host_memory=1000TiB"}), 3) << output_;
}

// Exit code 2 ends a service for good.
TEST_F(ServeStartTest, WhatMayPassIsNoWrongConfiguration) {
  const std::string none = own_ / "none";
  const struct {
    std::vector<std::string> settings;
    std::string says;
  } cases[] = {
      {{"roots=[" + none + "]"}, "roots: "},
      {{"administrators=[nobody-of-this-name]"}, "administrators: nobody-of-this-name"},
      {{"metrics_listen=192.0.2.1:9464"}, "metrics_listen: "},
      {{"listen=[\"192.0.2.1:0\"]", "tls.certificate=" + none, "tls.key=" + none,
        "tokens_file=" + none},
       "tls.certificate: "},
      {{"device=cuda"}, "device: "},
  };
  for (const auto& each : cases) {
    EXPECT_EQ(ExitCodeWith(each.settings), 1) << output_;
    EXPECT_THAT(output_, AllOf(HasSubstr(each.says), HasSubstr("this may pass")));
  }
}

TEST_F(ServeStartTest, AStopWhileTheDaemonStartsEndsIt) {
  const auto daemon = DaemonProcess::Launch(options_);
  // As soon as it handles signals at all, whatever it does then.
  const absl::Status begun =
      daemon->WaitFor([&] { return fs::exists(options_.directory + "/state"); });
  ASSERT_TRUE(begun.ok()) << begun;
  daemon->process().Signal(SIGTERM);
  EXPECT_EQ(daemon->process().Wait(), 0) << daemon->process().Output();
}

// A process is often given 1,024 at first, and more if it asks.
TEST_F(ServeStartTest, TheDaemonMayOpenAsManyFilesAsTheSystemAllowsIt) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = std::min<rlim_t>(before.rlim_max - 1, 512);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto daemon = DaemonProcess::Launch(options_);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  const absl::Status begun =
      daemon->WaitFor([&] { return fs::exists(options_.directory + "/state"); });
  ASSERT_TRUE(begun.ok()) << begun;
  rlimit limit = {};
  ASSERT_EQ(prlimit(daemon->process().pid(), RLIMIT_NOFILE, nullptr, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, before.rlim_max);
}

// Other accounts may pass through its directory where it trains for them.
TEST_F(ServeStartTest, WhatTheDaemonKeepsIsForItselfAlone) {
  const mode_t before = umask(0022);
  const auto daemon = DaemonProcess::Start(options_);
  umask(before);
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  (*daemon)->process().Signal(SIGTERM);
  EXPECT_EQ((*daemon)->process().Wait(), 0) << (*daemon)->process().Output();
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(options_.directory + "/state")) {
    if (!entry.is_regular_file()) continue;
    ++files;
    const fs::perms others =
        entry.status().permissions() & (fs::perms::group_all | fs::perms::others_all);
    EXPECT_TRUE(others == fs::perms::none) << entry.path();
  }
  EXPECT_GT(files, 0);
}

TEST_F(ServeStartTest, ADaemonThatWaitsForItsDeviceStopsOrGoesOnWithAnother) {
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  const std::string state = options_.directory + "/state";
  fs::create_directory(state);
  fs::permissions(state, fs::perms::owner_all);
  std::ofstream(state + "/device") << "cuda\n";
  options_.settings = {"device=auto"};
  const auto waits_for = [](DaemonProcess& daemon, const std::string& text) {
    return daemon.WaitFor(
        [&] { return daemon.process().Output().find(text) != std::string::npos; });
  };
  auto daemon = DaemonProcess::Launch(options_);
  ASSERT_TRUE(waits_for(*daemon, "--accept-device-change").ok()) << daemon->process().Output();
  daemon->process().Signal(SIGTERM);
  EXPECT_EQ(daemon->process().Wait(), 0) << daemon->process().Output();
  options_.arguments = {"--accept-device-change"};
  daemon = DaemonProcess::Launch(options_);
  ASSERT_TRUE(waits_for(*daemon, "megatraind: ready").ok()) << daemon->process().Output();
  EXPECT_EQ(ReadFileOrEmpty(state + "/device"), "cpu\n");
  unsetenv("CUDA_VISIBLE_DEVICES");
}

}  // namespace
}  // namespace megatrain
