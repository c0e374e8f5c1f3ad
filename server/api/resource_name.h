// Makes and parses the API's resource names: jobs/{job}, jobs/{job}/checkpoints/{step} and
// nodes/local. INVALID_FIELD errors name `field`, the field of the request that held the name.
#ifndef MEGATRAIN_SERVER_API_RESOURCE_NAME_H_
#define MEGATRAIN_SERVER_API_RESOURCE_NAME_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

inline constexpr char kNodeName[] = "nodes/local";

std::string JobName(const std::string& id);
std::string CheckpointName(const std::string& job_id, int64_t step);

// Returns the id of `jobs/{id}`, which is 1 to 100 ASCII letters, digits, '-' and '_'. There need
// not be such a job. Returns InvalidArgument (INVALID_FIELD) for any other text.
absl::StatusOr<std::string> ParseJobName(const std::string& field, const std::string& name);

struct JobCheckpointName {
  std::string job_id;
  int64_t step = 0;  // 0: the job's newest
};
// Reads `jobs/{id}` or `jobs/{id}/checkpoints/{step}` with step > 0. There need not be such a job
// or checkpoint. Returns InvalidArgument (INVALID_FIELD) for any other text.
absl::StatusOr<JobCheckpointName> ParseCheckpointName(const std::string& field,
                                                      const std::string& name);

// Returns OK for kNodeName, InvalidArgument (INVALID_FIELD) if `name` is empty, and NotFound
// (NODE_NOT_FOUND) for any other text.
absl::Status CheckNodeName(const std::string& field, const std::string& name);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_API_RESOURCE_NAME_H_
