// Prepares job files for a server.
#ifndef MEGATRAIN_CLIENT_CONTEXT_JOB_FILE_H_
#define MEGATRAIN_CLIENT_CONTEXT_JOB_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/connection/server_address.h"
#include "megatrain/v1/job.pb.h"

namespace megatrain::client {

// Reads `path` ("-": standard input) unchanged; the server checks its content. For a local server
// relative paths in it are taken from the file's directory; a remote one refuses them.
// InvalidArgument for what cannot be read or has more than 1 MiB.
absl::StatusOr<v1::JobFile> ReadJobFile(const std::string& path,
                                        const std::vector<std::string>& overrides,
                                        const ServerAddress& server);

// Returns `path` as it is on the server's machine: from the working directory if it is relative and
// the server local. InvalidArgument if it is relative and the server remote.
absl::StatusOr<std::string> PathOnServer(const std::string& path, const ServerAddress& server);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONTEXT_JOB_FILE_H_
