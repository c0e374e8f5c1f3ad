#include "client/commands/checkpoint_list.h"

#include "engine/base/status.h"

namespace megatrain::client {

absl::StatusOr<std::vector<v1::Checkpoint>> ListCheckpoints(Connection* connection,
                                                            const std::string& job_name) {
  std::vector<v1::Checkpoint> checkpoints;
  v1::ListCheckpointsRequest request;
  request.set_parent(job_name);
  do {
    MT_ASSIGN_OR_RETURN(
        const v1::ListCheckpointsResponse response,
        connection->Call(connection->jobs(), &v1::JobService::Stub::ListCheckpoints, request));
    checkpoints.insert(checkpoints.end(), response.checkpoints().begin(),
                       response.checkpoints().end());
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return checkpoints;
}

}  // namespace megatrain::client
