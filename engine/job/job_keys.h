// Declares all keys of a job file.
#ifndef MEGATRAIN_ENGINE_JOB_JOB_KEYS_H_
#define MEGATRAIN_ENGINE_JOB_JOB_KEYS_H_

#include <cstdint>

#include "engine/config/config_key.h"
#include "engine/job/job_spec.h"

namespace megatrain {

// The optimizer steps of a job that gives neither steps nor epochs.
inline constexpr int64_t kStepsDefault = 200;

// Returns the keys in the order of the job file. They read into `spec` and tell what it holds, so
// it must outlive the result. To see JobSpec's defaults as defaults, `spec` must be fresh. A
// resumed run may change the keys with may_change, because they affect neither the sequences nor
// the arithmetic of the steps already made.
ConfigTable JobKeys(JobSpec* spec);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_JOB_KEYS_H_
