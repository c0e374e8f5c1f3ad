// DaemonConfig is the daemon's configuration: checked values, read from YAML and overrides.
#ifndef MEGATRAIN_SERVER_CONFIG_DAEMON_CONFIG_H_
#define MEGATRAIN_SERVER_CONFIG_DAEMON_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/jobs/user_limits.h"

namespace megatrain {

struct DaemonConfig {
  // "unix:/PATH" is a Unix socket. It is private if only the daemon's user can enter its directory.
  // Otherwise it is shared, and callers prove who they are (peer_credential_server.h).
  // "HOST:PORT" is served with TLS, to callers with a certificate or a token.
  std::vector<std::string> listen = {"unix:/run/megatrain/megatrain.sock"};
  // "HOST:PORT" of the metrics page; "" = none. nullopt: the default address (metrics_server.h),
  // or none if it cannot be listened on.
  std::optional<std::string> metrics_listen;
  // Holds the store, the records of jobs, and the checkpoints of jobs that name no directory. One
  // daemon at a time may use it.
  std::string state_directory = "/var/lib/megatrain";
  int64_t host_memory = 0;      // bytes of the pool; 0 = EngineHost::DefaultPoolBytes at start
  std::string device = "auto";  // as EngineHostOptions::device
  // GPUs from `device` on, or equal parts of the cpu; 0 = all GPUs from there, or one cpu.
  int64_t devices = 1;
  // True if the daemon may start on a device of another kind than before. The command line sets it
  // (--accept-device-change); it is no key of the file.
  bool accept_device_change = false;
  // The threads of a job that asks for none, and the most that a job may ask for. 0 = the
  // processors that this process may use, and no limit. EngineHostOptions::threads says more.
  int64_t threads = 0;
  // The ended jobs of each user that the daemon remembers, beside those that hold checkpoints;
  // 0 = all.
  int64_t keep_ended_jobs = 200;
  // Absolute directories that jobs' paths must lie beneath. nullopt: see JobRoots.
  std::optional<std::vector<std::string>> roots;
  UserLimits limits = {.queued_jobs = 32, .running_jobs = 1};
  // Names of accounts that are administrators, beside the daemon's own user.
  std::vector<std::string> administrators;
  // Absolute paths; all but tokens_file are PEM files. With a TCP listener the certificate and key
  // are set, and tls_client_ca or tokens_file or both.
  std::string tls_certificate;
  std::string tls_key;
  std::string tls_client_ca;  // "" = no client certificates
  std::string tokens_file;    // "" = no tokens on TCP
  // The least severity that is logged: "info", "warning" or "error".
  std::string log_level = "info";
};

// Returns true if an address of `listen` is HOST:PORT.
bool HasTcp(const DaemonConfig& config);

// Returns the configured roots. If the configuration has no such key, returns /srv/megatrain for a
// daemon that others than its own user can reach (`shared`), and an empty list for a private one.
// An empty list sets no bounds: the rights of the daemon's user decide. Returns InvalidArgument if
// `shared` and the configured list is empty.
absl::StatusOr<std::vector<std::string>> JobRoots(const DaemonConfig& config, bool shared);

// Returns the keys whose values differ between `running` and `read` and which a running daemon
// cannot change. If `running` has a TCP listener, these include tls.client_ca if only one of the
// two configurations names such a file, and tokens_file likewise.
std::vector<std::string> KeysThatNeedRestart(const DaemonConfig& running, const DaemonConfig& read);

// Reads the file `path`, or takes the defaults if `path` is empty. Then applies `overrides`, as in
// "host_memory=24GiB". Returns the errors of ReadConfigText and ReadConfig (config_reader.h), and
// InvalidArgument for values that do not go together.
absl::StatusOr<DaemonConfig> ReadDaemonConfig(const std::string& path,
                                              const std::vector<std::string>& overrides);

// Does the same for a text. `name` stands for the file in errors.
absl::StatusOr<DaemonConfig> ParseDaemonConfig(const std::string& text, const std::string& name,
                                               const std::vector<std::string>& overrides);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_CONFIG_DAEMON_CONFIG_H_
