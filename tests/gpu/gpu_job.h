// Whole jobs of small models on the GPUs under test.
#ifndef MEGATRAIN_TESTS_GPU_GPU_JOB_H_
#define MEGATRAIN_TESTS_GPU_GPU_JOB_H_

#include <string>

#include "engine/job/job_spec.h"
#include "tests/engine/numerics/job_run.h"
#include "tests/engine/numerics/model_reference.h"

namespace megatrain {

// Returns the job by which the reference's curves were made, `clipped` or not; shorter where sizes
// are to be small, for a sanitizer or an emulation. Its files go to a fresh directory of this name.
JobSpec GpuJob(const ModelReference& reference, Precision precision, bool clipped,
               const std::string& directory);

// Expects that both have the same losses, norms and newest checkpoints, to the bit.
void ExpectSameBits(const JobSpec& spec, const JobRun& run, const JobSpec& expected_spec,
                    const JobRun& expected);

// Holds the run's curve against the reference's, as closely as its precision allows. REQUIRES: the
// job is the reference's, whole.
void ExpectReferencesCurve(const ModelReference& reference, Precision precision, bool clipped,
                           const JobRun& run);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_GPU_GPU_JOB_H_
