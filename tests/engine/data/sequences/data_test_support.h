// Jobs that read a test's files with the bytes tokenizer.
#ifndef MEGATRAIN_TESTS_ENGINE_DATA_SEQUENCES_DATA_TEST_SUPPORT_H_
#define MEGATRAIN_TESTS_ENGINE_DATA_SEQUENCES_DATA_TEST_SUPPORT_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/sequences/dataset.h"
#include "engine/job/job_spec.h"
#include "engine/tokenizer/bytes_tokenizer.h"
#include "tests/support/test_directory.h"

namespace megatrain {

inline JobSpec SpecOf(std::vector<DataFile> train, int64_t sequence_length) {
  JobSpec spec;
  spec.data.train = std::move(train);
  spec.data.sequence_length = sequence_length;
  spec.data.shuffle = false;
  spec.data.chat_template = "chatml";
  spec.data.tokenizer = "bytes";
  spec.training.steps = 10;
  return spec;
}

inline absl::StatusOr<std::unique_ptr<Dataset>> OpenWithBytes(const JobSpec& spec,
                                                              const TestDirectory& directory,
                                                              bool verify_data = false) {
  return OpenDataset(spec, MakeBytesTokenizer(), directory.path(), kBytesVocabulary,
                     directory / "cache", nullptr, PosixFileSystem(), verify_data);
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DATA_SEQUENCES_DATA_TEST_SUPPORT_H_
