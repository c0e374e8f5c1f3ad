// Shows data as training sees it, to people and to other programs (the command `inspect`). The
// functions return the errors of reading the dataset besides those that they name.
#ifndef MEGATRAIN_ENGINE_INSPECT_INSPECT_SEQUENCES_H_
#define MEGATRAIN_ENGINE_INSPECT_INSPECT_SEQUENCES_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/data/sequences/dataset.h"
#include "engine/job/job_spec.h"
#include "engine/tokenizer/tokenizer.h"

namespace megatrain {

// Returns the sequences at positions [begin, end) of the training order as a JSON list with one
// object on each line. Position 0 is the first sequence of step 1, and positions continue through
// the epochs. The members are position, sequence (the number in file order), and input_ids, labels,
// position_ids and document_ids as in Sequence (sequence.h). Pairs of answers also have the member
// pairs, with the documents of the chosen and the rejected answer of each. Returns InvalidArgument
// unless 0 <= begin <= end.
absl::StatusOr<std::string> SequencesJson(const Dataset& dataset, int64_t begin, int64_t end);

// Returns the same sequences for people: the counts of each sequence, then its text in stretches
// with the loss (marked "loss") and without. If `tokenizer` is null, ids are shown. Returns
// InvalidArgument unless 0 <= begin <= end.
absl::StatusOr<std::string> SequencesText(const Dataset& dataset, const Tokenizer* tokenizer,
                                          int64_t begin, int64_t end);

// Returns the counts of documents, tokens and sequences, the shares of a mix, the DatasetWarnings
// of the training data, and its first `samples` sequences in file order (fewer if there are fewer),
// in the form of SequencesText. `tokenizer` may be null as there.
absl::StatusOr<std::string> DescribeDataset(const Dataset& dataset, const Tokenizer* tokenizer,
                                            int64_t samples);

// Returns a line for each kind of data that was cut off, left out or has no loss, one for each bad
// record that `report` names, and one for the number of the other bad records, for people. Returns
// "" if there is none.
std::string DatasetWarnings(const DatasetReport& report);

// Guesses the format of a data file that no job file describes. A .npy file is tokens, the keys of
// the first record decide for files of records, and any other file is text. Only files of records
// are opened. Returns InvalidArgument for .bin, whose element type cannot be guessed, for an empty
// file of records, and for records of no known format. Returns the errors of CheckReadable and of
// reading.
absl::StatusOr<DataFile> GuessDataFile(const std::string& path);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_INSPECT_INSPECT_SEQUENCES_H_
