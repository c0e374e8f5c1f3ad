// Every key of a job file, declared once.
#ifndef MEGATRAIN_ENGINE_JOB_JOB_KEYS_H_
#define MEGATRAIN_ENGINE_JOB_JOB_KEYS_H_

#include <cstdint>

#include "engine/config/config_key.h"
#include "engine/job/job_spec.h"

namespace megatrain {

// Optimizer steps of a job that gives neither steps nor epochs.
inline constexpr int64_t kStepsDefault = 200;

// The keys in the order of the job file, bound to `spec`, which must outlive the result. Defaults
// are those of JobSpec. A resumed run may change those that may_change: they decide neither the
// sequences nor the arithmetic so far.
ConfigTable JobKeys(JobSpec* spec);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_JOB_JOB_KEYS_H_
