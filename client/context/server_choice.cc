// The part of Invocation that chooses the daemon, and what proves the user to it.
#include "absl/strings/str_cat.h"
#include "client/context/invocation.h"
#include "engine/base/status.h"

namespace megatrain::client {

absl::StatusOr<std::string> Invocation::ContextsPath() const {
  std::string base = environment_.variable("XDG_CONFIG_HOME");
  // The XDG specification has relative paths ignored.
  if (base.empty() || base.front() != '/') {
    const std::string home = environment_.variable("HOME");
    if (home.empty()) {
      return absl::InvalidArgumentError(
          "contexts are kept in the home directory, and HOME is not set");
    }
    base = absl::StrCat(home, "/.config");
  }
  return absl::StrCat(base, "/megatrain/contexts.json");
}

absl::StatusOr<Context> Invocation::Target() const {
  if (!server.empty()) return Context{server, {}};
  if (const std::string named = environment_.variable("MEGATRAIN_SERVER"); !named.empty()) {
    const absl::StatusOr<ServerAddress> address = ParseServerAddress(named);
    if (address.ok()) return Context{named, {}};
    return absl::InvalidArgumentError(
        absl::StrCat("MEGATRAIN_SERVER: ", address.status().message()));
  }
  if (const absl::StatusOr<std::string> path = ContextsPath(); path.ok()) {
    MT_ASSIGN_OR_RETURN(const Contexts contexts, ReadContexts(*path));
    if (!contexts.current.empty()) return contexts.contexts.at(contexts.current);
  }
  return Context{kDefaultServer, {}};
}

absl::StatusOr<ServerAddress> Invocation::Server() const {
  MT_ASSIGN_OR_RETURN(const Context target, Target());
  return ParseServerAddress(target.server);
}

absl::StatusOr<std::unique_ptr<Connection>> Invocation::Connect() const {
  MT_ASSIGN_OR_RETURN(Context target, Target());
  MT_ASSIGN_OR_RETURN(const ServerAddress address, ParseServerAddress(target.server));
  if (address.local()) return std::make_unique<Connection>(address);
  if (const std::string ca = environment_.variable("MEGATRAIN_CA"); !ca.empty()) {
    target.files.ca = ca;
  }
  const std::string token = environment_.variable("MEGATRAIN_TOKEN");
  if (!token.empty()) target.files.token = "";
  MT_ASSIGN_OR_RETURN(Credentials credentials, ReadCredentials(target.files));
  if (!token.empty()) {
    if (!IsToken(token)) return absl::InvalidArgumentError("MEGATRAIN_TOKEN: is not a token");
    credentials.token = token;
  }
  return std::make_unique<Connection>(address, credentials);
}

}  // namespace megatrain::client
