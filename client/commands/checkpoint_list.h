// Lists all checkpoints of a job, over all pages.
#ifndef MEGATRAIN_CLIENT_COMMANDS_CHECKPOINT_LIST_H_
#define MEGATRAIN_CLIENT_COMMANDS_CHECKPOINT_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/connection/connection.h"
#include "megatrain/v1/job.pb.h"

namespace megatrain::client {

// Returns the checkpoints of `job_name`, "jobs/ID", the newest first. Returns the errors of
// Connection::Call.
absl::StatusOr<std::vector<v1::Checkpoint>> ListCheckpoints(Connection* connection,
                                                            const std::string& job_name);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_COMMANDS_CHECKPOINT_LIST_H_
