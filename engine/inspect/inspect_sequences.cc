#include "engine/inspect/inspect_sequences.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/data/parquet/parquet_records.h"
#include "engine/data/records/data_file_io.h"
#include "engine/data/records/record_reader.h"
#include "engine/data/sequences/example.h"
#include "engine/data/sequences/file_words.h"
#include "engine/data/sequences/sequence.h"

namespace megatrain {
namespace {

absl::Status CheckRange(const Dataset& dataset, int64_t begin, int64_t end) {
  if (begin < 0 || end < begin) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sequences ", begin, ":", end,
        ": give A:B with 0 <= A <= B; the first epoch is 0:", dataset.epoch_sequences()));
  }
  return absl::OkStatus();
}

void AppendList(const char* name, const std::vector<int32_t>& values, std::string* json) {
  absl::StrAppend(json, ", \"", name, "\": [", absl::StrJoin(values, ", "), "]");
}

// The documents of each pair: the chosen answer's, then the rejected one's.
void AppendPairs(const Sequence& sequence, std::string* json) {
  int32_t documents = 0;
  for (const int32_t document : sequence.document_ids)
    documents = std::max(documents, document + 1);
  std::vector<std::string> pairs;
  for (int32_t chosen = 0; chosen < documents; chosen += 2) {
    pairs.push_back(absl::StrCat("[", chosen, ", ", chosen + 1, "]"));
  }
  absl::StrAppend(json, ", \"pairs\": [", absl::StrJoin(pairs, ", "), "]");
}

// Control characters as escapes, so that a stretch stays on its line.
std::string OnOneLine(const std::string& text) {
  std::string line;
  for (const char c : text) {
    if (c == '\n') {
      line += "\\n";
    } else if (c == '\r') {
      line += "\\r";
    } else if (c == '\t') {
      line += "\\t";
    } else if (c == '\\') {
      line += "\\\\";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      absl::StrAppendFormat(&line, "\\x%02x", static_cast<unsigned char>(c));
    } else {
      line += c;
    }
  }
  return line;
}

void AppendStretches(const Sequence& sequence, const std::vector<int32_t>& targets,
                     const Tokenizer* tokenizer, std::string* text) {
  const size_t size = sequence.input_ids.size();
  const auto predicted = [&targets](size_t t) { return t > 0 && targets[t - 1] != kMaskedLabel; };
  for (size_t begin = 0; begin < size && sequence.document_ids[begin] >= 0;) {
    size_t end = begin + 1;
    // A document's first token is never predicted; it is shown with what follows it.
    const int32_t document = sequence.document_ids[begin];
    const bool starts = begin == 0 || sequence.document_ids[begin - 1] != document;
    if (starts && sequence.pairs) {
      absl::StrAppend(text, "  pair ", document / 2, document % 2 == 0 ? ", chosen" : ", rejected",
                      "\n");
    } else if (starts) {
      absl::StrAppend(text, "  document ", document, "\n");
    }
    const bool loss = predicted(begin);
    while (end < size && sequence.document_ids[end] == sequence.document_ids[begin] &&
           predicted(end) == loss) {
      ++end;
    }
    const std::vector<int32_t> ids(sequence.input_ids.begin() + static_cast<ptrdiff_t>(begin),
                                   sequence.input_ids.begin() + static_cast<ptrdiff_t>(end));
    absl::StrAppend(text, loss ? "    loss | " : "         | ",
                    tokenizer != nullptr ? OnOneLine(tokenizer->Decode(ids, /*skip_special=*/false))
                                         : absl::StrJoin(ids, " "),
                    "\n");
    begin = end;
  }
}

void AppendSequence(const Sequence& sequence, const Tokenizer* tokenizer, std::string* text) {
  int64_t tokens = 0, documents = 0;
  for (const int32_t document : sequence.document_ids) {
    tokens += document >= 0 ? 1 : 0;
    documents = std::max<int64_t>(documents, document + 1);
  }
  const std::vector<int32_t> targets = PredictionTargets(sequence);
  const int64_t masked = std::count(targets.begin(), targets.end(), kMaskedLabel);
  absl::StrAppend(text, ": ", FormatCount(tokens), " tokens, ",
                  FormatCount(static_cast<int64_t>(sequence.input_ids.size()) - tokens),
                  " padding, ", sequence.pairs ? documents / 2 : documents,
                  sequence.pairs   ? documents == 2 ? " pair, " : " pairs, "
                  : documents == 1 ? " document, "
                                   : " documents, ",
                  FormatCount(static_cast<int64_t>(targets.size()) - masked), " predictions\n");
  AppendStretches(sequence, targets, tokenizer, text);
}

}  // namespace

absl::StatusOr<std::string> SequencesJson(const Dataset& dataset, int64_t begin, int64_t end) {
  MT_RETURN_IF_ERROR(CheckRange(dataset, begin, end));
  std::string json = "[";
  for (int64_t position = begin; position < end; ++position) {
    const int64_t index = dataset.TrainingOrder(position);
    MT_ASSIGN_OR_RETURN(const Sequence sequence, dataset.TrainSequence(index));
    absl::StrAppend(&json, position == begin ? "\n" : ",\n", "{\"position\": ", position,
                    ", \"sequence\": ", index);
    AppendList("input_ids", sequence.input_ids, &json);
    AppendList("labels", sequence.labels, &json);
    AppendList("position_ids", sequence.position_ids, &json);
    AppendList("document_ids", sequence.document_ids, &json);
    if (sequence.pairs) AppendPairs(sequence, &json);
    json += "}";
  }
  json += "\n]\n";
  return json;
}

absl::StatusOr<std::string> SequencesText(const Dataset& dataset, const Tokenizer* tokenizer,
                                          int64_t begin, int64_t end) {
  MT_RETURN_IF_ERROR(CheckRange(dataset, begin, end));
  std::string text;
  for (int64_t position = begin; position < end; ++position) {
    const int64_t index = dataset.TrainingOrder(position);
    MT_ASSIGN_OR_RETURN(const Sequence sequence, dataset.TrainSequence(index));
    absl::StrAppend(&text, "position ", position, " (sequence ", index, ")");
    AppendSequence(sequence, tokenizer, &text);
  }
  return text;
}

std::string DatasetWarnings(const DatasetReport& report) {
  std::string text;
  if (report.truncated_examples > 0) {
    absl::StrAppend(&text, FormatCount(report.truncated_examples),
                    " examples are longer than a sequence and were cut off\n");
  }
  if (report.examples_without_target > 0) {
    absl::StrAppend(&text, FormatCount(report.examples_without_target),
                    " examples have no token that the loss is on and were passed over\n");
  }
  if (report.turns_without_loss > 0) {
    absl::StrAppend(&text, FormatCount(report.turns_without_loss),
                    " turns of the assistant have no loss, because the chat template writes them "
                    "otherwise when further messages follow\n");
  }
  if (report.dropped_tokens > 0) {
    absl::StrAppend(&text, FormatCount(report.dropped_tokens),
                    " tokens at the end are less than a sequence and were dropped\n");
  }
  const BadRecords& bad = report.bad_records;
  if (bad.count > 0) {
    absl::StrAppend(&text, FormatCount(bad.count),
                    " records cannot be read and were passed over\n");
  }
  for (const std::string& name : bad.named) absl::StrAppend(&text, "  ", name, "\n");
  if (bad.unnamed() > 0) absl::StrAppend(&text, "  and ", FormatCount(bad.unnamed()), " more\n");
  return text;
}

absl::StatusOr<std::string> DescribeDataset(const Dataset& dataset, const Tokenizer* tokenizer,
                                            int64_t samples) {
  const DatasetReport& report = dataset.train_report();
  std::string text =
      absl::StrCat(FormatCount(report.documents), " documents, ", FormatCount(report.tokens),
                   " tokens, ", FormatCount(dataset.train_sequences()), " training sequences");
  if (dataset.eval_sequences() > 0) {
    absl::StrAppend(&text, ", ", FormatCount(dataset.eval_sequences()), " for evaluation");
  }
  text += "\n";
  for (const MixedSource& source : report.mix) {
    absl::StrAppendFormat(&text, "%s: %.4g%% of the mix, %s sequences, %.4g passes an epoch\n",
                          source.path, 100 * source.share, FormatCount(source.sequences),
                          source.passes);
  }
  if (!report.mix.empty()) {
    absl::StrAppend(&text, "an epoch of the mix is ", FormatCount(dataset.epoch_sequences()),
                    " sequences\n");
  }
  text += DatasetWarnings(report);
  for (int64_t index = 0; index < std::min(samples, dataset.train_sequences()); ++index) {
    MT_ASSIGN_OR_RETURN(const Sequence sequence, dataset.TrainSequence(index));
    absl::StrAppend(&text, "sequence ", index);
    AppendSequence(sequence, tokenizer, &text);
  }
  return text;
}

absl::StatusOr<DataFile> GuessDataFile(const std::string& path) {
  MT_RETURN_IF_ERROR(CheckReadable(path));
  DataFile file;
  file.path = path;
  const std::string lower = absl::AsciiStrToLower(path);
  if (absl::EndsWith(lower, ".bin")) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        ": a .bin file says nothing of its type; name it in a job file with format: tokens "
        "and dtype: uint16 or uint32"));
  }
  if (absl::EndsWith(lower, ".npy")) {
    file.format = DataFormat::kTokens;
    return file;
  }
  if (!HoldsRecords(file)) return file;
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<DataFileReader> reader, DataFileReader::Open(path));
  HashingStream raw(reader.get());
  std::unique_ptr<ByteSource> decompressed;
  std::unique_ptr<RecordReader> records;
  const FileKind kind = KindOfFile(path);
  if (kind.content == FileContent::kParquet) {
    MT_ASSIGN_OR_RETURN(records, ParquetRecordReader::Open(reader.get(), ""));
  } else if (kind.compression != Compression::kNone) {
    decompressed = Decompress(kind.compression, &raw, path);
    records = MakeRecordReader(decompressed.get(), path);
  } else {
    records = MakeRecordReader(&raw, path);
  }
  Record record;
  MT_ASSIGN_OR_RETURN(const bool any, records->Next(&record));
  if (!any) return absl::InvalidArgumentError(absl::StrCat(path, ": is empty"));
  const absl::StatusOr<DataFormat> format =
      record.defect.ok() ? ExampleParser().Guess(record.json) : record.defect;
  if (!format.ok()) {
    return absl::Status(format.status().code(), absl::StrCat(path, records->Place(record), ": ",
                                                             format.status().message()));
  }
  file.format = *format;
  return file;
}

}  // namespace megatrain
