// Jobs that read a test's files with the bytes tokenizer.
#ifndef MEGATRAIN_TESTS_ENGINE_DATA_SEQUENCES_DATA_TEST_SUPPORT_H_
#define MEGATRAIN_TESTS_ENGINE_DATA_SEQUENCES_DATA_TEST_SUPPORT_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
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

// The message with which the data is refused.
inline std::string OpenError(const JobSpec& spec, const TestDirectory& directory) {
  const auto dataset = OpenWithBytes(spec, directory);
  return dataset.ok() ? "it was opened" : std::string(dataset.status().message());
}

// The text of a sequence, with '$' for the end of a text.
inline std::string TextOf(const Sequence& sequence) {
  std::string text;
  for (size_t t = 0; t < sequence.input_ids.size(); ++t) {
    if (sequence.document_ids[t] < 0) break;
    const int32_t id = sequence.input_ids[t];
    text += id == kBytesEosId ? '$' : static_cast<char>(id);
  }
  return text;
}

inline std::vector<std::string> TrainTexts(const Dataset& dataset) {
  std::vector<std::string> texts;
  for (int64_t i = 0; i < dataset.train_sequences(); ++i) {
    texts.push_back(TextOf(*dataset.TrainSequence(i)));
  }
  return texts;
}

// The prepared data: words and sequences.
inline std::vector<std::string> CachedFiles(const TestDirectory& directory) {
  std::vector<std::string> paths;
  if (!std::filesystem::exists(directory / "cache")) return paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory / "cache")) {
    if (entry.path().filename() != "hashes.cache") paths.push_back(entry.path());
  }
  return paths;
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DATA_SEQUENCES_DATA_TEST_SUPPORT_H_
