// Arbitrary bytes as a data file, whose records are tokenised as examples of every format. The
// input's first byte is 'c' for CSV and anything else for JSON, its second one 'g' for gzip, 'z'
// for zstd and anything else for no compression. The file follows.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/chat_template.h"
#include "engine/data/records/byte_source.h"
#include "engine/data/records/csv_records.h"
#include "engine/data/records/json_records.h"
#include "engine/data/sequences/document_encoder.h"
#include "engine/data/sequences/example.h"
#include "engine/tokenizer/bytes_tokenizer.h"

namespace megatrain {
namespace {

// Small inputs may decompress to much.
constexpr size_t kTextBytesMax = size_t{64} << 10;
constexpr size_t kExamplesMax = 16;

void Check(bool condition) {
  if (!condition) std::abort();
}

// Gives at most `step` bytes a read.
class Bytes : public ByteSource {
 public:
  Bytes(std::string_view text, size_t step) : text_(text), step_(step) {}
  absl::StatusOr<size_t> Read(void* to, size_t bytes) override {
    const size_t take = std::min({bytes, step_, text_.size()});
    if (take > 0) std::memcpy(to, text_.data(), take);
    text_.remove_prefix(take);
    return take;
  }

 private:
  std::string_view text_;
  const size_t step_;
};

struct Text {
  std::string bytes;
  bool ok = true;
};

Text Decompressed(Compression compression, std::string_view file, size_t step, size_t read_bytes) {
  Bytes source(file, step);
  const std::unique_ptr<ByteSource> content = Decompress(compression, &source, "input");
  Text text;
  std::vector<char> buffer(read_bytes);
  while (text.bytes.size() < kTextBytesMax) {
    const auto got = content->Read(buffer.data(), buffer.size());
    if (!got.ok()) {
      Check(absl::IsInvalidArgument(got.status()));
      text.ok = false;
      break;
    }
    if (*got == 0) break;
    text.bytes.append(buffer.data(), *got);
  }
  text.bytes.resize(std::min(text.bytes.size(), kTextBytesMax));
  return text;
}

struct Records {
  std::vector<std::string> json;  // with the record's place
  absl::Status status;
};

Records Read(bool csv, std::string_view text, size_t step, size_t chunk_bytes,
             std::vector<std::string>* examples) {
  Bytes source(text, step);
  std::unique_ptr<RecordReader> reader;
  if (csv) {
    reader = std::make_unique<CsvRecordReader>(&source, "input", chunk_bytes);
  } else {
    reader = std::make_unique<JsonRecordReader>(&source, "input", chunk_bytes);
  }
  Records records;
  Record record;
  while (true) {
    const auto more = reader->Next(&record);
    records.status = more.status();
    if (!more.ok() || !*more) return records;
    Check(record.defect.ok() || record.json.empty());
    if (csv && record.defect.ok()) {
      Check(nlohmann::json::accept(record.json));
    } else if (!csv) {
      Check(text.substr(static_cast<size_t>(record.offset), record.json.size()) == record.json);
    }
    if (examples != nullptr && examples->size() < kExamplesMax) examples->emplace_back(record.json);
    records.json.push_back(reader->Place(record) + std::string(record.json) +
                           std::string(record.defect.message()));
  }
}

void Encode(const std::string& json) {
  static const auto* const kTokenizer = new std::shared_ptr<const Tokenizer>(MakeBytesTokenizer());
  static const auto* const kTemplate = [] {
    ChatTemplateOptions options;
    options.name = "chatml";
    return ChatTemplate::Create(options, **kTokenizer)->release();
  }();
  DocumentEncoderOptions options;
  options.tokenizer = kTokenizer->get();
  options.chat_template = kTemplate;
  options.eos_id = 1;
  options.vocabulary = kBytesVocabulary;
  ExampleParser parser;
  Example example;
  std::vector<uint32_t> words;
  const auto add = [&](const absl::Status& parsed) {
    if (parsed.ok()) {
      DocumentEncoder(options).Encode(example, &words).IgnoreError();
    } else {
      Check(!parsed.message().empty());
    }
  };
  if (!parser.Guess(json).ok()) return;
  for (const DataFormat format : {DataFormat::kText, DataFormat::kAlpaca, DataFormat::kShareGpt,
                                  DataFormat::kMessages, DataFormat::kPreference}) {
    if (format != DataFormat::kPreference) add(parser.Parse(format, json, &example));
    if (format != DataFormat::kText) add(parser.ParsePair(format, json, &example));
  }
}

void TestOne(std::string_view input) {
  if (input.size() < 2) return;
  const bool csv = input[0] == 'c';
  const char compression = input[1];
  std::string_view text = input.substr(2);
  Text content;
  if (compression == 'g' || compression == 'z') {
    const Compression kind = compression == 'g' ? Compression::kGzip : Compression::kZstd;
    content = Decompressed(kind, text, 1 << 20, 1 << 16);
    const Text again = Decompressed(kind, text, 7, 5);
    Check(content.ok == again.ok || content.bytes.size() == kTextBytesMax);
    if (content.ok) Check(content.bytes == again.bytes);
    text = content.bytes;
  }
  std::vector<std::string> examples;
  const Records whole = Read(csv, text, 1 << 20, 1 << 20, &examples);
  const Records pieces = Read(csv, text, 5, 3, nullptr);
  Check(whole.status == pieces.status);
  Check(whole.json == pieces.json);
  for (const std::string& json : examples) Encode(json);
}

}  // namespace
}  // namespace megatrain

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  megatrain::TestOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
