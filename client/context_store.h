// Named servers of a user, and which of them is meant when none is named. Kept in
// $XDG_CONFIG_HOME/megatrain/contexts.json, by default ~/.config/megatrain/contexts.json:
//   {"current": "lab", "contexts": {"lab": {"server": "unix:/run/megatrain/megatrain.sock"}}}
#ifndef MEGATRAIN_CLIENT_CONTEXT_STORE_H_
#define MEGATRAIN_CLIENT_CONTEXT_STORE_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain::client {

struct Contexts {
  std::string current;                         // empty: none
  std::map<std::string, std::string> servers;  // address by name

  bool operator==(const Contexts&) const = default;
};

// A file that is not there holds no contexts. InvalidArgument names the file and what is wrong.
absl::StatusOr<Contexts> ReadContexts(const std::string& path);
// Makes the directory if need be; the file is replaced as a whole, readable by its owner alone.
absl::Status WriteContexts(const std::string& path, const Contexts& contexts);

// The first context becomes the current one. InvalidArgument for a name or address that cannot be,
// AlreadyExists for a name that is taken by another address.
absl::Status AddContext(const std::string& name, const std::string& server, Contexts* contexts);
// NotFound names those there are.
absl::Status UseContext(const std::string& name, Contexts* contexts);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONTEXT_STORE_H_
