// Prepared data as people and other programs look at it.
#ifndef MEGATRAIN_ENGINE_DATA_SEQUENCES_INSPECT_SEQUENCES_H_
#define MEGATRAIN_ENGINE_DATA_SEQUENCES_INSPECT_SEQUENCES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/data/sequences/batch_loader.h"
#include "engine/job/job_spec.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

// What training sees at positions [begin, end) of the training order (position 0 is the first
// sequence of step 1; positions count on through epochs): a JSON list with an object a sequence,
// one a line: position, sequence (its number in file order), input_ids, labels, position_ids,
// document_ids.
absl::StatusOr<std::string> SequencesJson(const Dataset& dataset, int64_t begin, int64_t end);

// The same for people: each sequence's counts, and its text in stretches that the loss is on
// ("loss") or is not on ("    "). `tokenizer` may be null: then ids are shown.
absl::StatusOr<std::string> SequencesText(const Dataset& dataset, const Tokenizer* tokenizer,
                                          int64_t begin, int64_t end);

// Counts of documents, tokens and sequences, what was cut off or passed over, and the first
// `samples` training sequences in file order, as SequencesText shows them.
absl::StatusOr<std::string> DescribeDataset(const Dataset& dataset, const Tokenizer* tokenizer,
                                            int64_t samples);

// The lines on what was cut off or passed over, empty if nothing was: a job's log says them too.
std::string DatasetWarnings(const DatasetReport& report);

// How a data file that no job file speaks of is to be read: .npy is tokens, .json and .jsonl what
// the first record's keys say, anything else but .bin (whose type must be given) is text.
absl::StatusOr<DataFile> GuessDataFile(const std::string& path);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DATA_SEQUENCES_INSPECT_SEQUENCES_H_
