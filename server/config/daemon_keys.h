// Declares every key of the daemon's configuration, its values and its help text.
#ifndef MEGATRAIN_SERVER_CONFIG_DAEMON_KEYS_H_
#define MEGATRAIN_SERVER_CONFIG_DAEMON_KEYS_H_

#include "engine/config/config_key.h"
#include "server/config/daemon_config.h"

namespace megatrain {

// Returns the keys in the order of the documentation, bound to `config`, which must outlive the
// result. The defaults are the values that `config` has during the call. A reload (SIGHUP) takes
// over the keys with ConfigKey::may_change, but for changes that KeysThatNeedRestart names.
ConfigTable DaemonKeys(DaemonConfig* config);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_CONFIG_DAEMON_KEYS_H_
