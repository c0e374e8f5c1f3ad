// Finds out how far a job got from its records on disk.
#ifndef MEGATRAIN_SERVER_STORE_RECORDED_STEP_H_
#define MEGATRAIN_SERVER_STORE_RECORDED_STEP_H_

#include <cstdint>
#include <string>

#include "server/worker/job_records.h"

namespace megatrain {

// Returns the step of the job's newest record of step metrics; 0 if there is none or it cannot be
// read. May be called from any thread; reads files. For JobLedger::Options::reached_step.
int64_t RecordedStep(JobRecordsDirectory* directory, const std::string& job_id);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_STORE_RECORDED_STEP_H_
