#include "server/config/daemon_keys.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/config/config_values.h"
#include "engine/job/device_name.h"
#include "server/metrics/metrics_server.h"

namespace megatrain {
namespace {

constexpr int64_t kThreadsMax = 4096;
constexpr int64_t kDevicesMax = 64;
constexpr int64_t kJobsMax = 1000000;
constexpr bool kMayChange = true;
constexpr char kNoLimit[] = "no limit";
constexpr char kRootsExpected[] = "a list of absolute directories, as in [/srv/megatrain]";

bool IsAbsolute(const std::string& path) { return absl::StartsWith(path, "/"); }

ConfigValue Listen(std::vector<std::string>* addresses) {
  ConfigValue value =
      Texts(addresses,
            "a list of addresses, as in [\"unix:/run/megatrain/megatrain.sock\", \"0.0.0.0:9463\"]",
            "^(unix:/.*|[^, \\t/]+:[0-9]+)$", [](const std::string& address) -> std::string {
              if (absl::StartsWith(address, "unix:/") || IsHostPort(address)) return "";
              return absl::StartsWith(address, "unix:")
                         ? "an absolute path after unix:"
                         : "unix:/PATH or HOST:PORT, as in 0.0.0.0:9463 or [::1]:9463";
            });
  value.schema["minItems"] = 1;
  value.schema["uniqueItems"] = true;
  return value;
}

ConfigValue MetricsListen(std::string* address) {
  ConfigValue value =
      Text(address, "HOST:PORT, as in 127.0.0.1:9464", "^([^, \\t/]+:[0-9]+)?$",
           [](const std::string& text) { return text.empty() || IsHostPort(text); });
  value.note = "\"\" = none";
  return value;
}

ConfigValue Roots(std::vector<std::string>* roots) {
  return Texts(roots, kRootsExpected, "^/", [](const std::string& root) -> std::string {
    return IsAbsolute(root) ? "" : kRootsExpected;
  });
}

ConfigValue FilePath(std::string* path) {
  ConfigValue value =
      Text(path, "the absolute path of a file", "^(/|$)",
           [](const std::string& text) { return text.empty() || IsAbsolute(text); });
  value.note = "\"\" = none";
  return value;
}

}  // namespace

ConfigTable DaemonKeys(DaemonConfig* config) {
  UserLimits& limits = config->limits;
  ConfigTable table = {
      "configuration", "host_memory=24GiB", "reload", "are taken over by a reload (SIGHUP)", {}};
  table.keys = {
      {"listen", Listen(&config->listen),
       "addresses of the API: unix:/PATH, and HOST:PORT with TLS"},
      {.path = "metrics_listen",
       .value = Optional(&config->metrics_listen, MetricsListen),
       .help = "address of the page for Prometheus",
       .default_or_example = absl::StrCat("\"", kDefaultMetricsAddress, "\"")},
      {"state_directory", Text(&config->state_directory, "an absolute path", "^/", IsAbsolute),
       "store, logs, and checkpoints of jobs that name no directory"},
      {"host_memory",
       Bytes(&config->host_memory,
             "80% of what is free at start, or the huge pages set aside where they are more"),
       "memory that is reserved for jobs at start, in bytes or as in 900GiB"},
      {"device", Text(&config->device, kDeviceNames, kDevicePattern, IsDeviceName),
       "what computes; auto = the first GPU, else the cpu; or cpu, cuda, cuda:N"},
      {"devices", WholeOr("all", &config->devices, 1, kDevicesMax),
       "devices that jobs run on side by side: GPUs from that one on, or equal parts of the cpu"},
      {"threads", Whole(&config->threads, 0, kThreadsMax, "the processors the daemon may use"),
       "threads of a job; one that has some of the devices has their part"},
      {.path = "roots",
       .value = Optional(&config->roots, Roots),
       .help =
           "directories that jobs may name paths beneath; left out, a private daemon has no bounds",
       .default_or_example = R"(["/srv/megatrain"])"},
      {"administrators", Texts(&config->administrators, "a list of user names, as in [anna]"),
       "accounts that see and control everybody's jobs", kMayChange},
      {"keep_ended_jobs_per_user", Whole(&config->keep_ended_jobs, 0, kJobsMax, "all"),
       "ended jobs of each user that are remembered, beside those with checkpoints", kMayChange},
      {kQueuedJobsLimit, Whole(&limits.queued_jobs, 0, kJobsMax, kNoLimit),
       "jobs of a user that wait", kMayChange},
      {kRunningJobsLimit, Whole(&limits.running_jobs, 0, kJobsMax, kNoLimit),
       "jobs of a user that run", kMayChange},
      {kDevicesLimit, Whole(&limits.devices, 0, kDevicesMax, kNoLimit),
       "devices of a user's jobs that run", kMayChange},
      {kHostMemoryLimit, Bytes(&limits.host_bytes, kNoLimit),
       "reserved memory of a user's jobs, in bytes or as in 200GiB", kMayChange},
      {kDiskLimit, Bytes(&limits.disk_bytes, kNoLimit),
       "what a user's jobs hold of the state directory, in bytes or as in 2TiB", kMayChange},
      {"tls.certificate", FilePath(&config->tls_certificate),
       "PEM file of the server's certificate, the chain after it", kMayChange},
      {"tls.key", FilePath(&config->tls_key), "PEM file of the certificate's key", kMayChange},
      {"tls.client_ca", FilePath(&config->tls_client_ca),
       "PEM file of the authority that issues client certificates", kMayChange},
      {"tokens_file", FilePath(&config->tokens_file),
       "file of bearer tokens of callers on TCP, which `megatraind token add USER` makes",
       kMayChange},
      {"log_level", Choice(&config->log_level, {"info", "warning", "error"}),
       "least severity that is logged", kMayChange},
  };
  return table;
}

}  // namespace megatrain
