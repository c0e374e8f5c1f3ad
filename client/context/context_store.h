// Named servers of a user, and the current one, which is used when none is named. Kept in
// $XDG_CONFIG_HOME/megatrain/contexts.json, by default ~/.config/megatrain/contexts.json:
//   {"current": "lab", "contexts": {
//       "lab": {"server": "unix:/run/megatrain/megatrain.sock"},
//       "far": {"server": "node7:9463", "ca": "/F", "token_file": "/F"}}}
// with "certificate" and "key" for a client certificate. Secrets are in files of their own.
#ifndef MEGATRAIN_CLIENT_CONTEXT_CONTEXT_STORE_H_
#define MEGATRAIN_CLIENT_CONTEXT_CONTEXT_STORE_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/connection/credentials.h"

namespace megatrain::client {

struct Context {
  std::string server;
  CredentialFiles files;  // for TCP

  bool operator==(const Context&) const = default;
};

struct Contexts {
  std::string current;                      // empty: none
  std::map<std::string, Context> contexts;  // by name

  bool operator==(const Contexts&) const = default;
};

// Reads the file; one that is missing holds no contexts. InvalidArgument names the file and what is
// wrong.
absl::StatusOr<Contexts> ReadContexts(const std::string& path);
// Replaces the file as a whole, readable by its owner only, and makes its directory if it is
// missing. Errors name the path.
absl::Status WriteContexts(const std::string& path, const Contexts& contexts);

// Adds a context, or leaves an equal one. The first becomes the current one. Relative paths of
// files are taken from the working directory. InvalidArgument for a name or address that cannot be,
// and for files that cannot be used; AlreadyExists for a name that is taken by another context.
absl::Status AddContext(const std::string& name, const Context& context, Contexts* contexts);
// Makes a context the current one. NotFound names the contexts that there are.
absl::Status UseContext(const std::string& name, Contexts* contexts);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONTEXT_CONTEXT_STORE_H_
