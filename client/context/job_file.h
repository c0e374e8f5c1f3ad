// Reads job files, and makes paths absolute, for requests to a server.
#ifndef MEGATRAIN_CLIENT_CONTEXT_JOB_FILE_H_
#define MEGATRAIN_CLIENT_CONTEXT_JOB_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/connection/server_address.h"
#include "megatrain/v1/job.pb.h"

namespace megatrain::client {

// Reads the job file at `path` ("-" means standard input). The content is not parsed or changed.
// `overrides` are texts KEY=VALUE, which the server applies. If the server is local, relative paths
// in the file start at the file's directory, or at the working directory for "-". A remote server
// refuses relative paths. Returns InvalidArgument if the file cannot be read or is above 1 MiB, and
// if its content, its name, its directory (if that is sent) or an override is not UTF-8.
absl::StatusOr<v1::JobFile> ReadJobFile(const std::string& path,
                                        const std::vector<std::string>& overrides,
                                        const ServerAddress& server);

// Returns `path` as an absolute path on the server's machine. A relative path starts at the working
// directory if the server is local, and is InvalidArgument if the server is remote. "." and ".."
// are resolved as text, whatever links there are. An empty path, or one that is not UTF-8, is
// InvalidArgument.
absl::StatusOr<std::string> PathOnServer(const std::string& path, const ServerAddress& server);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONTEXT_JOB_FILE_H_
