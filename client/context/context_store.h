// Reads and writes the contexts of a user, which are servers with names, and the name of the
// current one, which is used when no server is given. They are kept in
// $XDG_CONFIG_HOME/megatrain/contexts.json, by default ~/.config/megatrain/contexts.json:
//   {"current": "lab", "contexts": {
//       "lab": {"server": "unix:/run/megatrain/megatrain.sock"},
//       "far": {"server": "node7:9463", "ca": "/F", "token_file": "/F"}}}
// A context may also have "certificate" and "key", the files of a client certificate. Secrets are
// in files of their own.
#ifndef MEGATRAIN_CLIENT_CONTEXT_CONTEXT_STORE_H_
#define MEGATRAIN_CLIENT_CONTEXT_CONTEXT_STORE_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/connection/credentials.h"

namespace megatrain::client {

struct Context {
  std::string server;     // an address, as ParseServerAddress takes it
  CredentialFiles files;  // only for TCP

  bool operator==(const Context&) const = default;
};

struct Contexts {
  std::string current;                      // empty: none
  std::map<std::string, Context> contexts;  // by name

  bool operator==(const Contexts&) const = default;
};

// Reads the file at `path`. Returns no contexts if it does not exist. Returns InvalidArgument,
// naming the file, if it cannot be read or is invalid. Addresses in it are not parsed, and the
// files that it names are not read.
absl::StatusOr<Contexts> ReadContexts(const std::string& path);
// Replaces the file atomically with one that only its owner can read, and makes its directory if it
// is missing. Returns InvalidArgument, naming the path, if that fails; the old file is then
// unchanged. Takes no lock: of two programs that read and write at once, the last one wins.
absl::Status WriteContexts(const std::string& path, const Contexts& contexts);

// Adds a context, or leaves an equal one of that name as it is. A name has 1 to 64 letters, digits
// and characters of "-_.". The context becomes the current one if there is none. Relative paths of
// files start at the working directory. Returns InvalidArgument for another name, for an invalid
// address, and for credential files with a Unix socket. Returns the errors of ReadCredentials, and
// AlreadyExists if a different context has the name. After an error `*contexts` is unchanged.
absl::Status AddContext(const std::string& name, const Context& context, Contexts* contexts);
// Makes a context the current one. Returns NotFound, naming the contexts that exist, if there is
// none of that name.
absl::Status UseContext(const std::string& name, Contexts* contexts);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONTEXT_CONTEXT_STORE_H_
