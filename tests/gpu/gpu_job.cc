#include "tests/gpu/gpu_job.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/device/kernels_under_test.h"

namespace megatrain {

JobSpec GpuJob(const ModelReference& reference, Precision precision, bool clipped,
               const std::string& directory) {
  JobSpec spec = CurveJob(reference, precision, clipped, FreshDirectory(directory));
  spec.engine.device = "cuda:0";
  if (!SizeIsTested(1 << 20)) {
    spec.data.sequence_length = 16;
    spec.data.cache_directory = ::testing::TempDir() + "/cache16";
    spec.training.global_batch = 2;
  }
  return spec;
}

void ExpectSameBits(const JobSpec& spec, const JobRun& run, const JobSpec& expected_spec,
                    const JobRun& expected) {
  ASSERT_TRUE(run.status.ok()) << run.status;
  ASSERT_EQ(run.records.size(), expected.records.size());
  for (size_t k = 0; k < run.records.size(); ++k) {
    EXPECT_EQ(run.records[k].loss, expected.records[k].loss)
        << "DIFFERENT FROM RUN TO RUN: the loss of step " << k + 1;
    EXPECT_EQ(run.records[k].gradient_norm, expected.records[k].gradient_norm)
        << "DIFFERENT FROM RUN TO RUN: the gradient's norm of step " << k + 1;
  }
  const auto files = CheckpointTensorFiles(spec);
  const auto expected_files = CheckpointTensorFiles(expected_spec);
  ASSERT_FALSE(expected_files.empty());
  for (const auto& [name, bytes] : expected_files) {
    EXPECT_TRUE(files.contains(name) && files.at(name) == bytes)
        << "DIFFERENT FROM RUN TO RUN: " << name;
  }
}

void ExpectReferencesCurve(const ModelReference& reference, Precision precision, bool clipped,
                           const JobRun& run) {
  ASSERT_TRUE(run.status.ok()) << run.status;
  const LossCurve &expected = reference.fp32_curve[clipped], &exact = reference.fp64_curve[clipped],
                  &bf16 = reference.bf16_curve[clipped];
  const LossCurve curve = run.curve();
  if (precision == Precision::kFp32) {
    EXPECT_LE(CurveDistance(curve.losses, expected.losses),
              std::max(1e-4, 3 * CurveDistance(expected.losses, exact.losses)));
    EXPECT_LE(CurveDistance(curve.gradient_norms, expected.gradient_norms),
              std::max(1e-4, 3 * CurveDistance(expected.gradient_norms, exact.gradient_norms)));
  } else {
    EXPECT_LE(CurveDeviation(curve.losses, expected.losses),
              1.5 * CurveDeviation(bf16.losses, expected.losses));
    EXPECT_LE(CurveDistance(curve.gradient_norms, expected.gradient_norms), 3e-2);
  }
}

}  // namespace megatrain
