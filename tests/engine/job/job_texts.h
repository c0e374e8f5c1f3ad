// Job files as texts for tests, and their refusals.
#ifndef MEGATRAIN_TESTS_ENGINE_JOB_JOB_TEXTS_H_
#define MEGATRAIN_TESTS_ENGINE_JOB_JOB_TEXTS_H_

#include <string>
#include <utility>
#include <vector>

#include "engine/job/job_parser.h"
#include "gtest/gtest.h"

namespace megatrain {

inline constexpr char kMinimal[] =
    "model: {path: models/tiny}\n"
    "data:\n"
    "  train:\n"
    "    - {path: train.txt, format: text}\n";

inline absl::StatusOr<JobSpec> Parse(const std::string& text,
                                     std::vector<std::string> overrides = {}) {
  return ParseJobText(text, "job.yaml", "/jobs", overrides);
}

// The message of the refusal of `kMinimal` followed by `text`.
inline std::string Refusal(const std::string& text, std::vector<std::string> overrides = {}) {
  absl::StatusOr<JobSpec> spec = Parse(kMinimal + text, std::move(overrides));
  if (spec.ok()) return "accepted";
  EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(spec.status().message());
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_JOB_JOB_TEXTS_H_
