#include "server/config/daemon_config.h"

#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::StatusOr<DaemonConfig> Parse(const std::string& text,
                                   const std::vector<std::string>& overrides = {}) {
  return ParseDaemonConfig(text, "f.yaml", overrides);
}

std::string ErrorOf(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const absl::StatusOr<DaemonConfig> config = Parse(text, overrides);
  if (config.ok()) return "accepted";
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(config.status().message());
}

TEST(DaemonConfigTest, NothingGivesTheDefaults) {
  const DaemonConfig config = ReadDaemonConfig("", {}).value();
  EXPECT_THAT(config.listen, ElementsAre("unix:/run/megatrain/megatrain.sock"));
  EXPECT_EQ(config.state_directory, "/var/lib/megatrain");
  EXPECT_EQ(config.host_memory, 0);
  EXPECT_EQ(config.device, "auto");
  EXPECT_EQ(config.devices, 1);
  EXPECT_EQ(config.metrics_listen, std::nullopt);
  EXPECT_EQ(config.threads, 0);
  EXPECT_EQ(config.keep_ended_jobs, 200);
  EXPECT_EQ(config.limits.queued_jobs, 32);
  EXPECT_EQ(config.limits.running_jobs, 1);
  EXPECT_EQ(config.limits.devices, 0);
  EXPECT_EQ(config.limits.host_bytes, 0);
  EXPECT_EQ(config.limits.disk_bytes, 0);
}

TEST(DaemonConfigTest, ReadsWhatItHas) {
  const DaemonConfig config = Parse(R"(
listen: ["unix:/a/m.sock", "unix:/b/m.sock"]
metrics_listen: ""
state_directory: /data/./x/..//state/
host_memory: 1.5GiB
device: cpu
devices: 2
threads: 3
keep_ended_jobs_per_user: 0
roots: [/srv/a, /srv/b]
administrators: [anna, bob]
limits: {queued_jobs_per_user: 0, running_jobs_per_user: 3, devices_per_user: 4,
         host_memory_per_user: 24GiB, disk_per_user: 2TiB}
tls: {certificate: "", key: "", client_ca: ""}
tokens_file: ""
)")
                                  .value();
  EXPECT_THAT(config.listen, ElementsAre("unix:/a/m.sock", "unix:/b/m.sock"));
  EXPECT_EQ(config.state_directory, "/data/state");
  EXPECT_EQ(config.host_memory, int64_t{3} << 29);
  EXPECT_EQ(config.metrics_listen, "");
  EXPECT_EQ(config.device, "cpu");
  EXPECT_EQ(config.devices, 2);
  EXPECT_EQ(config.threads, 3);
  EXPECT_EQ(config.keep_ended_jobs, 0);
  EXPECT_THAT(*config.roots, ElementsAre("/srv/a", "/srv/b"));
  EXPECT_EQ(config.limits.queued_jobs, 0);
  EXPECT_EQ(config.limits.running_jobs, 3);
  EXPECT_EQ(config.limits.devices, 4);
  EXPECT_EQ(config.limits.host_bytes, int64_t{24} << 30);
  EXPECT_THAT(config.administrators, ElementsAre("anna", "bob"));
  EXPECT_EQ(config.limits.disk_bytes, int64_t{2} << 40);
}

TEST(DaemonConfigTest, OverridesReplaceTheFilesValues) {
  const DaemonConfig config = Parse("host_memory: nonsense\nstate_directory: /a\n",
                                    {"host_memory=2GiB", "listen=[\"unix:/c/m.sock\"]", "threads=1",
                                     "threads=2", "tls.key=\"\"", "metrics_listen='[::1]:9000'"})
                                  .value();
  EXPECT_EQ(config.host_memory, int64_t{2} << 30);
  EXPECT_EQ(config.state_directory, "/a");
  EXPECT_THAT(config.listen, ElementsAre("unix:/c/m.sock"));
  EXPECT_EQ(config.threads, 2);
  EXPECT_EQ(config.metrics_listen, "[::1]:9000");
}

TEST(DaemonConfigTest, WhatIsNotUnderstoodIsRefusedByPathAndLine) {
  const std::string cases[][2] = {
      {"\nhost_memry: 1\n", "f.yaml:2: host_memry: unknown key; did you mean host_memory?"},
      {"tls: {kee: x}", "tls.kee: unknown key; did you mean tls.key?"},
      {"tls: 3", "tls: expects a map, got 3"},
      {"tls.key: x", "keys are nested"},
      {"[a]", "a configuration is a map of keys"},
      {"threads: -1", "f.yaml:1: threads: expects a whole number from 0 to 4096, got -1"},
      {"threads: 5000", "from 0 to 4096"},
      {"threads: \"2\"", "expects a whole number"},
      {"threads: [2]", "got a list"},
      {"threads:", "got nothing"},
      {"host_memory: 3 apples", "host_memory: expects a size in bytes"},
      {"host_memory: -1", "expects a size in bytes"},
      {"state_directory: state", "expects an absolute path, got state"},
      {"state_directory: {}", "expects an absolute path"},
      {"device: gpu", "expects auto, cpu, cuda or cuda:N, got gpu"},
      {"device: cuda:first", "expects auto, cpu, cuda or cuda:N, got cuda:first"},
      {"metrics_listen: 9464", "metrics_listen: expects HOST:PORT, as in 127.0.0.1:9464, got 9464"},
      {"metrics_listen: []", "metrics_listen: expects HOST:PORT"},
      {"metrics_listen: \"127.0.0.1:1,127.0.0.1:2\"", "expects HOST:PORT"},
      {"listen: unix:/a", "expects a list of addresses"},
      {"listen: []", "at least one"},
      {"listen: [[]]", "expects a list of addresses"},
      {"listen: [\"unix:m.sock\"]", "absolute path after unix:"},
      {"listen: [\"unix:/a\", \"unix:/a\"]", "twice"},
      {"limits: {queued_jobs_per_user: -1}",
       "limits.queued_jobs_per_user: expects a whole number from 0 to 1000000, got -1"},
      {"limits: {running_jobs_per_user: 1.5}", "expects a whole number"},
      {"limits: {disk_per_user: -1}", "limits.disk_per_user: expects a size"},
      {"limits: {host_memory_per_user: much}", "limits.host_memory_per_user: expects a size"},
      {"limits: {host_memory: 1}", "unknown key; did you mean"},
      {"threads: 1\nthreads: 2", "f.yaml:2"},
      {"administrators: anna", "administrators: expects a list of user names"},
      {"administrators: [\"\"]", "administrators: expects a list of user names"},
      {"threads: *a", "f.yaml"},
      {": :", "f.yaml"},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(ErrorOf(text), HasSubstr(message)) << text;
}

TEST(DaemonConfigTest, RootsAreAbsoluteDirectories) {
  EXPECT_THAT(ErrorOf("roots: /srv"), HasSubstr("roots: expects a list"));
  EXPECT_THAT(ErrorOf("roots: [srv]"), HasSubstr("roots: expects a list of absolute directories"));
}

TEST(DaemonConfigTest, TcpIsServedWithTlsToCallersThatProveWhoTheyAre) {
  const DaemonConfig config = Parse(R"(
listen: ["127.0.0.1:0", "[::1]:9463", "unix:/a/m.sock"]
tls: {certificate: /c, key: /k, client_ca: /ca}
tokens_file: /t
)")
                                  .value();
  EXPECT_TRUE(HasTcp(config));
  EXPECT_EQ(config.tls_certificate, "/c");
  EXPECT_EQ(config.tls_key, "/k");
  EXPECT_EQ(config.tls_client_ca, "/ca");
  EXPECT_EQ(config.tokens_file, "/t");
  const std::string tls = "tls: {certificate: /c, key: /k}\n";
  EXPECT_TRUE(Parse("listen: [\"h:1\"]\ntokens_file: /t\n" + tls).ok());
  EXPECT_FALSE(HasTcp(Parse("").value()));
  const std::string cases[][2] = {
      {"listen: [\"127.0.0.1:7000\"]",
       "f.yaml: listen: TCP, loopback too, is served with TLS only"},
      {"listen: [\"127.0.0.1:7000\"]\ntokens_file: /t", "is served with TLS only"},
      {"listen: [\"127.0.0.1:7000\"]\n" + tls, "callers on TCP must prove who they are"},
      {"tls: {key: /k}", "tls.certificate: is missing"},
      {"tls: {certificate: /c}", "tls.key: is missing"},
      {"tls: {certificate: c}", "tls.certificate: expects the absolute path of a file"},
      {"tokens_file: []", "tokens_file: expects the absolute path of a file"},
      {"tokens_file: t", "tokens_file: expects the absolute path of a file"},
      {"listen: [\"localhost\"]", "expects unix:/PATH or HOST:PORT"},
      {"listen: [\":9463\"]", "expects unix:/PATH or HOST:PORT"},
      {"listen: [\"::1:9463\"]", "expects unix:/PATH or HOST:PORT"},
      {"listen: [\"h:65536\"]", "expects unix:/PATH or HOST:PORT"},
      {"listen: [\"h:http\"]", "expects unix:/PATH or HOST:PORT"},
      {"listen: [\"a/b:1\"]", "expects unix:/PATH or HOST:PORT"},
  };
  for (const auto& [text, message] : cases) EXPECT_THAT(ErrorOf(text), HasSubstr(message)) << text;
}

TEST(DaemonConfigTest, WrongOverridesNameThemselves) {
  EXPECT_EQ(ErrorOf("", {"thread=2"}),
            "--set thread=2: thread: unknown key; did you mean threads?");
  EXPECT_THAT(ErrorOf("", {"threads"}), HasSubstr("expects KEY=VALUE"));
  EXPECT_THAT(ErrorOf("", {"=2"}), HasSubstr("expects KEY=VALUE"));
  EXPECT_THAT(ErrorOf("", {"tls=x"}), HasSubstr("is a section"));
  EXPECT_THAT(ErrorOf("", {"threads=many"}), HasSubstr("--set threads=many: threads: expects"));
  EXPECT_THAT(ErrorOf("", {"listen=[\"unix:/a\""}), HasSubstr("--set listen="));
}

TEST(DaemonConfigTest, EntriesOfListsAreNamedByTheirLineAndReplacedByTheirNumber) {
  EXPECT_EQ(
      ErrorOf("roots:\n  - /a\n  - b\n"),
      "f.yaml:3: roots: expects a list of absolute directories, as in [/srv/megatrain], got b");
  EXPECT_THAT(Parse("roots: [/a, /b]", {"roots.1=/c"})->roots.value(), ElementsAre("/a", "/c"));
  EXPECT_EQ(
      ErrorOf("roots: [/a]", {"roots.1=/c"}),
      "--set roots.1=/c: roots.1: roots is a list of 1 entries, numbered from 0; there is no 1");
  EXPECT_EQ(ErrorOf("roots: /a", {"roots.0=/c"}),
            "f.yaml:1: roots: expects a list of absolute directories, as in [/srv/megatrain], got "
            "/a");
}

TEST(DaemonConfigTest, RefusalsSayWhatZeroMeans) {
  EXPECT_EQ(
      ErrorOf("limits: {disk_per_user: -1}"),
      "f.yaml:1: limits.disk_per_user: expects a size in bytes, or with KiB, MiB, GiB or TiB, "
      "as in 24GiB, got -1; 0 = no limit");
}

TEST(DaemonConfigTest, FilesThatCannotBeRead) {
  const std::string directory = testing::TempDir();
  EXPECT_EQ(ReadDaemonConfig(directory + "/missing.yaml", {}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadDaemonConfig(directory, {}).status().code(), absl::StatusCode::kInvalidArgument);
  const std::string large = directory + "/large.yaml";
  std::ofstream(large) << std::string(2 << 20, '#');
  EXPECT_EQ(ReadDaemonConfig(large, {}).status().code(), absl::StatusCode::kInvalidArgument);
  const std::string good = directory + "/good.yaml";
  std::ofstream(good) << "threads: 1\n";
  EXPECT_EQ(ReadDaemonConfig(good, {})->threads, 1);
}

TEST(DaemonConfigTest, OverridesApplyToAFileAndWithoutOne) {
  EXPECT_EQ(ReadDaemonConfig("", {"threads=3"})->threads, 3);
  const std::string path = testing::TempDir() + "/overridden.yaml";
  std::ofstream(path) << "threads: 1\ndevices: 2\n";
  const absl::StatusOr<DaemonConfig> config = ReadDaemonConfig(path, {"threads=3"});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->threads, 3);
  EXPECT_EQ(config->devices, 2);
}

TEST(DaemonConfigTest, TheLogHasEverythingOrLess) {
  EXPECT_EQ(Parse("")->log_level, "info");
  EXPECT_EQ(Parse("log_level: warning")->log_level, "warning");
  EXPECT_THAT(ErrorOf("log_level: loud"), HasSubstr("log_level: expects info, warning or error"));
}

TEST(DaemonConfigTest, NamesWhatADaemonThatRunsCannotChange) {
  const std::string tcp =
      "listen: [\"0.0.0.0:9463\"]\ntokens_file: /t\ntls: {certificate: /c, key: /k}\n";
  const auto keys = [](const std::string& running, const std::string& read) {
    return KeysThatNeedRestart(*Parse(running), *Parse(read));
  };
  EXPECT_THAT(keys(tcp, tcp), ElementsAre());
  EXPECT_THAT(keys("",
                   "limits: {queued_jobs_per_user: 3}\nadministrators: [anna]\n"
                   "log_level: error\nkeep_ended_jobs_per_user: 7\n"),
              ElementsAre());
  EXPECT_THAT(keys(tcp,
                   "listen: [\"0.0.0.0:9463\"]\ntokens_file: /u\n"
                   "tls: {certificate: /d, key: /l}\n"),
              ElementsAre());
  EXPECT_THAT(keys("",
                   "threads: 3\ndevice: cpu\nroots: [/a]\nmetrics_listen: \"\"\n"
                   "state_directory: /b\nhost_memory: 1GiB\nlisten: [\"unix:/c\"]\ndevices: 2\n"),
              ElementsAre("listen", "metrics_listen", "state_directory", "host_memory", "device",
                          "devices", "threads", "roots"));
  EXPECT_THAT(
      keys(tcp, "listen: [\"0.0.0.0:9463\"]\ntls: {certificate: /c, key: /k, client_ca: /a}"),
      ElementsAre("tls.client_ca", "tokens_file"));
  // What listeners did not begin with, they do not look at.
  const std::string certificates =
      "listen: [\"0.0.0.0:9463\"]\ntls: {certificate: /c, key: /k, client_ca: /a}\n";
  EXPECT_THAT(keys(certificates, certificates + "tokens_file: /t\n"), ElementsAre("tokens_file"));
  EXPECT_THAT(keys(certificates, tcp), ElementsAre("tls.client_ca", "tokens_file"));
  // Without TCP nothing looks at them.
  EXPECT_THAT(keys("", "tokens_file: /t\ntls: {certificate: /c, key: /k, client_ca: /a}"),
              ElementsAre());
}

TEST(JobRootsTest, WhereNoneAreNamedItMattersWhoCanReachTheDaemon) {
  const DaemonConfig config;
  EXPECT_THAT(*JobRoots(config, /*shared=*/false), IsEmpty());
  EXPECT_THAT(*JobRoots(config, /*shared=*/true), ElementsAre("/srv/megatrain"));
}

TEST(JobRootsTest, NamedOnesHold) {
  DaemonConfig config;
  config.roots = {"/a", "/b"};
  for (const bool shared : {false, true}) {
    EXPECT_THAT(*JobRoots(config, shared), ElementsAre("/a", "/b"));
  }
}

TEST(JobRootsTest, OnlyAPrivateDaemonCanBeToldToHaveNone) {
  DaemonConfig config;
  config.roots.emplace();
  EXPECT_THAT(*JobRoots(config, /*shared=*/false), IsEmpty());
  const absl::Status status = JobRoots(config, /*shared=*/true).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("roots: "));
}

}  // namespace
}  // namespace megatrain
