#include "engine/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/file.h"
#include "engine/hf/hf_format.h"
#include "tests/engine/checkpoint/checkpoint_fixture.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

Manifest MakeManifest() {
  Manifest manifest;
  manifest.tiles = 2;
  manifest.state = MakeState(TinyLayout(), DType::kBF16, 100);
  manifest.state.seed = ~uint64_t{0};
  manifest.state.carried_digest = std::string(32, 'd');
  manifest.state.reference = "of the reference";
  manifest.state.evaluations = {80, 2.25, 3, 40, 2.5};
  manifest.state.allowed_changes = {{40, "optimizer.learning_rate", "0.0003", "1e-05"}};
  manifest.state.spec["data.train[0].path"] = "a \"quoted\" näme\n";
  for (int tile = 0; tile < 2; ++tile) {
    // Blocks of 4 MiB; those of the other file have no hashes.
    manifest.files.push_back({WeightsFileName(tile, 2), (4 << 20) + 1 + tile, std::string(32, 'a'),
                              std::string(32, 'e') + std::string(32, 'f')});
    manifest.files.push_back(
        {OptimizerFileName(tile, 2), int64_t{1} << 40, std::string(32, 'b'), ""});
  }
  manifest.files.push_back({kHfIndexFileName, 10, std::string(32, 'c'), ""});
  return manifest;
}

// `text` with its checksum made right again, as someone who forges a manifest would.
std::string Reseal(std::string text) {
  const size_t seal = text.rfind(",\n  \"xxh3_128\": \"");
  const std::string body = text.substr(0, seal);
  return absl::StrCat(body, ",\n  \"xxh3_128\": \"", HashBytes(body), "\"\n}\n");
}

TEST(ManifestTest, NamesCountFromOne) {
  EXPECT_EQ(WeightsFileName(0, 3), "model-00001-of-00003.safetensors");
  EXPECT_EQ(OptimizerFileName(2, 3), "optimizer-00003-of-00003.safetensors");
}

TEST(ManifestTest, RoundTrip) {
  const Manifest before = MakeManifest();
  const auto after = ParseManifest(SerializeManifest(before));
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->tiles, 2);
  EXPECT_EQ(after->state.step, 100);
  EXPECT_EQ(after->state.seed, ~uint64_t{0});
  EXPECT_EQ(after->state.weight_dtype, DType::kBF16);
  EXPECT_EQ(after->state.data_position, before.state.data_position);
  EXPECT_EQ(after->state.input_tokens, before.state.input_tokens);
  EXPECT_EQ(after->state.threads, before.state.threads);
  EXPECT_EQ(after->state.arithmetic, "cpu, some library");
  EXPECT_EQ(after->state.steps_total, before.state.steps_total);
  EXPECT_EQ(after->state.spec, before.state.spec);
  EXPECT_EQ(after->state.evaluations.best_step, 80);
  EXPECT_EQ(after->state.evaluations.best_loss, 2.25);
  EXPECT_EQ(after->state.evaluations.since_best, 3);
  EXPECT_EQ(after->state.evaluations.kept_step, 40);
  EXPECT_EQ(after->state.evaluations.kept_loss, 2.5);
  ASSERT_EQ(after->state.allowed_changes.size(), 1u);
  EXPECT_EQ(after->state.allowed_changes[0].step, 40);
  EXPECT_EQ(after->state.allowed_changes[0].key, "optimizer.learning_rate");
  EXPECT_EQ(after->state.allowed_changes[0].before, "0.0003");
  EXPECT_EQ(after->state.allowed_changes[0].now, "1e-05");
  EXPECT_EQ(after->state.data_fingerprint, before.state.data_fingerprint);
  EXPECT_EQ(after->state.model_fingerprint, before.state.model_fingerprint);
  EXPECT_EQ(after->state.carried_digest, std::string(32, 'd'));
  EXPECT_EQ(after->state.reference, "of the reference");
  ASSERT_EQ(after->files.size(), before.files.size());
  EXPECT_EQ(after->files[0].blocks, before.files[0].blocks);
  EXPECT_EQ(after->files[0].BlockHash(kHashBlockBytes), std::string(32, 'f'));
  EXPECT_EQ(after->files[1].blocks, "");
  EXPECT_EQ(after->files[1].bytes, int64_t{1} << 40);
  EXPECT_EQ(after->Find(kHfIndexFileName)->xxh3_128, std::string(32, 'c'));
  EXPECT_EQ(after->Find("absent"), nullptr);
}

TEST(ManifestTest, ABestThatWasNotKeptIsNoneThatIs) {
  Manifest manifest = MakeManifest();
  for (const int64_t kept : {0, 80}) {
    manifest.state.evaluations.kept_step = kept;
    const auto parsed = ParseManifest(SerializeManifest(manifest));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->state.evaluations.best_step, 80);
    EXPECT_EQ(parsed->state.evaluations.kept_step, kept);
  }
}

TEST(ManifestTest, EveryFlippedBitIsFound) {
  const std::string text = SerializeManifest(MakeManifest());
  for (size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      const auto parsed = ParseManifest(damaged);
      ASSERT_EQ(parsed.status().code(), absl::StatusCode::kDataLoss) << "byte " << i;
      ASSERT_THAT(std::string(parsed.status().message()), HasSubstr("manifest.json"));
    }
  }
}

TEST(ManifestTest, EveryTruncationIsFound) {
  const std::string text = SerializeManifest(MakeManifest());
  for (size_t length = 0; length < text.size(); ++length) {
    ASSERT_EQ(ParseManifest(text.substr(0, length)).status().code(), absl::StatusCode::kDataLoss);
  }
  EXPECT_FALSE(ParseManifest(text + "\n").ok());
}

TEST(ManifestTest, VersionsThatDidNotNameTheRunAreRead) {
  Manifest manifest = MakeManifest();
  manifest.state.run = "5f0e";
  const std::string text = SerializeManifest(manifest);
  EXPECT_EQ(ParseManifest(text)->state.run, "5f0e");
  const std::string old = Reseal(absl::StrReplaceAll(text, {{"\"run\": \"5f0e\",", ""}}));
  ASSERT_NE(old, text);
  const auto parsed = ParseManifest(old);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->state.run, "");
}

TEST(ManifestTest, VersionsThatDidNotNoteTheArithmeticAreRead) {
  const std::string text = SerializeManifest(MakeManifest());
  const std::string old =
      Reseal(absl::StrReplaceAll(text, {{"\"arithmetic\": \"cpu, some library\",", ""}}));
  ASSERT_NE(old, text);
  const auto parsed = ParseManifest(old);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->state.arithmetic, "");
}

// A manifest that somebody changed and gave a right checksum.
void ExpectForgeryRefused(const std::string& from, const std::string& to,
                          const std::string& message) {
  const std::string text = SerializeManifest(MakeManifest());
  const std::string forged = Reseal(absl::StrReplaceAll(text, {{from, to}}));
  ASSERT_NE(forged, text) << from;
  const auto parsed = ParseManifest(forged);
  ASSERT_FALSE(parsed.ok()) << from;
  EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(message));
}

TEST(ManifestTest, ForgedContentIsRefused) {
  for (const char* name : {"../model.safetensors", "/a", "a/b", "..", ".", "", "manifest.json",
                           "a\\u0000b", "additional_chat_templates/",
                           "additional_chat_templates/..", "additional_chat_templates/../a",
                           "additional_chat_templates/a/b", "additional_chat_templates_/a"}) {
    ExpectForgeryRefused("model.safetensors.index.json", name, "is not one within");
  }
  ExpectForgeryRefused("model.safetensors.index.json", "other.json", "does not list");
  ExpectForgeryRefused("model.safetensors.index.json", WeightsFileName(0, 2), "listed twice");
  ExpectForgeryRefused("\"version\": 1", "\"version\": 0", "less than 1");
  ExpectForgeryRefused("\"tiles\": 2", "\"tiles\": 3", "does not list");
  ExpectForgeryRefused("\"tiles\": 2", "\"tiles\": 4000000000", "fewer files");
  ExpectForgeryRefused("\"tiles\": 2", "\"tiles\": 0", "less than 1");
  ExpectForgeryRefused("\"tiles\": 2", "\"tiles\": \"2\"", "not an integer");
  ExpectForgeryRefused("\"bytes\": 10,", "\"bytes\": -1,", "less than 0");
  ExpectForgeryRefused("\"bytes\": 10,", "\"bytes\": 1e3,", "not an integer");
  ExpectForgeryRefused("\"bytes\": 10,", "\"bytes\": 18446744073709551615,", "out of range");
  ExpectForgeryRefused("\"bytes\": 4194305,", "\"bytes\": 8388609,", "for 3 blocks");
  ExpectForgeryRefused("\"bytes\": 4194305,", "\"bytes\": 9223372036854775807,",
                       "more than a checkpoint can have");
  ExpectForgeryRefused("\"bytes\": 10,", "\"bytes\": 72057594037927936,",
                       "more than a checkpoint can have");
  ExpectForgeryRefused("\"step\": 100", "\"step\": null", "not an integer");
  ExpectForgeryRefused("\"step\": 80", "\"step\": 0", "less than 1");
  ExpectForgeryRefused("\"eval_loss\": 2.25", "\"eval_loss\": \"x\"", "not a number");
  ExpectForgeryRefused("\"threads\": 2", "\"threads\": 2147483648", "\"threads\" is out of range");
  ExpectForgeryRefused("\"seed\": 18446744073709551615", "\"seed\": -1", "not an unsigned integer");
  ExpectForgeryRefused("global_batch\": \"8\"", "global_batch\": 8", "is not a string");
  ExpectForgeryRefused("\"allowed_changes\": [", "\"allowed_changes\": [3,", "is not an object");
  ExpectForgeryRefused("\"files\": [", "\"files\": [3,", "is not an object");
  ExpectForgeryRefused("\"BF16\"", "\"F16\"", "neither BF16 nor F32");
  ExpectForgeryRefused("\"state\": {", "\"state\": 3, \"other\": {", "wrong type");
  ExpectForgeryRefused("\"megatrain checkpoint\"", "\"other\"", "\"format\"");
  ExpectForgeryRefused("\"files\": [", "\"files\": [[", "not valid JSON");
  ExpectForgeryRefused("\"tiles\": 2", "\"tiles\": 2, \"tiles\": 2", "tiles");
}

// The manifest of one of two parts: it has every second thousand of each file's bytes.
Manifest MakePart() {
  Manifest manifest = MakeManifest();
  manifest.part = CheckpointPart{1, 2, std::string(32, 'a')};
  for (ManifestFile& file : manifest.files) {
    if (file.name == kHfIndexFileName) continue;
    file.name += kPartSuffix;
    file.ranges = {{1000, 2000}, {3000, 4000}};
  }
  return manifest;
}

TEST(ManifestTest, APartRoundTrips) {
  const Manifest part = MakePart();
  const auto parsed = ParseManifest(SerializeManifest(part));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_TRUE(parsed->part.has_value());
  EXPECT_EQ(parsed->part->number, 1);
  EXPECT_EQ(parsed->part->parts, 2);
  EXPECT_EQ(parsed->part->save, part.part->save);
  const ManifestFile* const file = parsed->Find(part.TileFileNames(1)[0]);
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(file->ranges.size(), 2u);
  EXPECT_EQ(file->ranges[1].begin, 3000);
  EXPECT_EQ(file->ranges[1].end, 4000);
}

TEST(ManifestTest, AForgedPartIsRefused) {
  const std::string text = SerializeManifest(MakePart());
  const std::vector<std::pair<std::string, std::string>> forgeries = {
      {"\"number\": 1", "\"number\": 2"},
      {"\"of\": 2", "\"of\": 1"},
      {std::string(32, 'a') + "\"\n  }", "a b\"}"},
      {"\"part\"", "\"other\""},
      {"1000", "2000"},
      {"3000", "1500"},
      {"4000", "72057594037927937"},
      {"4000", "null"},
      {"4000", "8000000"},
      {"1000", "-1000"}};
  for (const auto& [from, to] : forgeries) {
    ASSERT_NE(text.find(from), std::string::npos) << from;
    const auto parsed = ParseManifest(Reseal(absl::StrReplaceAll(text, {{from, to}})));
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kDataLoss) << from << " " << to;
  }
}

TEST(ManifestTest, APartsFileIsLongerThanItsRanges) {
  for (const int64_t header_bytes : {0, 1}) {
    Manifest manifest = MakePart();
    ManifestFile& file = manifest.files[0];
    file.bytes = 2000 + header_bytes;
    file.blocks = std::string(32, 'e');
    const auto parsed = ParseManifest(SerializeManifest(manifest));
    EXPECT_EQ(parsed.ok(), header_bytes > 0) << parsed.status();
  }
}

TEST(ManifestTest, AFileOfWholeBlocksHasNoFurtherHash) {
  for (const int64_t blocks : {0, 1, 2}) {
    Manifest manifest = MakeManifest();
    ManifestFile& file = manifest.files[0];
    file.bytes = blocks * kHashBlockBytes;
    file.blocks = std::string(static_cast<size_t>(blocks) * kHashDigits, 'e');
    const auto parsed = ParseManifest(SerializeManifest(manifest));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->files[0].blocks, file.blocks);
    file.blocks += std::string(kHashDigits, 'e');
    EXPECT_EQ(ParseManifest(SerializeManifest(manifest)).status().code(),
              absl::StatusCode::kDataLoss);
  }
}

TEST(ManifestTest, AFurtherChatTemplateIsAFileOfTheCheckpoint) {
  Manifest manifest = MakeManifest();
  const std::string name = "additional_chat_templates/rag.jinja";
  manifest.files.push_back({name, 3, std::string(32, 'd'), ""});
  const auto parsed = ParseManifest(SerializeManifest(manifest));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_NE(parsed->Find(name), nullptr);
}

// A save must not fail for a path in the job file.
TEST(ManifestTest, ValuesThatAreNotUtf8AreReplaced) {
  Manifest manifest = MakeManifest();
  manifest.state.spec["data.train[0].path"] = "a\xff";
  const auto parsed = ParseManifest(SerializeManifest(manifest));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->state.spec.at("data.train[0].path"), "a\xef\xbf\xbd");
}

TEST(ManifestTest, AnotherVersionIsRefusedByNumber) {
  for (const int version : {3, 9}) {
    const std::string text =
        Reseal(absl::StrReplaceAll(SerializeManifest(MakeManifest()),
                                   {{"\"version\": 1", absl::StrCat("\"version\": ", version)}}));
    const auto parsed = ParseManifest(text);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(parsed.status().message()),
                HasSubstr(absl::StrCat("version ", version)));
  }
}

}  // namespace
}  // namespace megatrain
