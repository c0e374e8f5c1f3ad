#include "server/store/recorded_step.h"

#include <memory>
#include <vector>

#include "server/worker/record_log.h"

namespace megatrain {

int64_t RecordedStep(JobRecordsDirectory* directory, const std::string& job_id) {
  const absl::StatusOr<std::shared_ptr<JobRecords>> records = directory->Open(job_id);
  if (!records.ok()) return 0;
  const RecordLog& metrics = (*records)->metrics();
  const int64_t newest = metrics.next_sequence() - 1;
  if (newest < 1) return 0;
  std::vector<LogRecord> found;
  if (!metrics.Read(newest)->Next(1, &found).ok() || found.empty()) return 0;
  return found.back().step;
}

}  // namespace megatrain
