// Preparation of many files and of large ones: with few descriptors, on several threads, and after
// a SIGKILL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "engine/base/watched_file_system.h"
#include "engine/data/sequences/document_encoder.h"
#include "engine/tokenizer/hf_tokenizer.h"
#include "tests/engine/data/sequences/data_test_support.h"
#include "tests/support/read_file.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

std::string AllText(const Dataset& dataset) {
  std::string text;
  for (int64_t i = 0; i < dataset.train_sequences(); ++i) {
    const auto sequence = dataset.TrainSequence(i);
    EXPECT_TRUE(sequence.ok()) << sequence.status();
    if (!sequence.ok()) return "";
    text += TextOf(*sequence);
  }
  return text;
}

// The files of prepared words, and what tells one of them from one that was made again.
std::map<std::string, std::pair<uint64_t, absl::Time>> WordFiles(const std::string& cache) {
  std::map<std::string, std::pair<uint64_t, absl::Time>> files;
  for (const auto& entry : fs::directory_iterator(cache)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("words-") || !name.ends_with(".cache")) continue;
    const auto info = PosixFileSystem()->Examine(entry.path());
    EXPECT_TRUE(info.ok());
    files[name] = {info->inode, info->modified};
  }
  return files;
}

std::vector<DataFile> MakeShards(TestDirectory& directory, int count, std::string* text) {
  fs::create_directories(directory / "shards");
  for (int i = 0; i < count; ++i) {
    const std::string line = "shard " + std::to_string(10000 + i);
    const bool plain = i % 3 == 0;
    directory.Write("shards/" + std::to_string(10000 + i) + (plain ? ".txt" : ".jsonl"),
                    plain ? line : "{\"text\":\"" + line + "\"}");
    *text += line + "$";
  }
  return {{directory / "shards", DataFormat::kText, ""}};
}

TEST(PreparationTest, ThousandsOfShardsTakeFewDescriptors) {
  TestDirectory directory;
  std::string text;
  JobSpec spec = SpecOf(MakeShards(directory, 2000, &text), 64);
  spec.engine.threads = 4;
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  for (int round = 0; round < 2; ++round) {  // made, and found in the cache
    const auto dataset = OpenWithBytes(spec, directory);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    if (dataset.ok()) {
      EXPECT_TRUE(AllText(**dataset) == text);
    }
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

// Kills the process when the `n`-th file of words is to get its name.
class KillingFiles : public WatchedFileSystem {
 public:
  explicit KillingFiles(int n)
      : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }), left_(n) {}
  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (to.find("/words-") != std::string::npos && --left_ == 0) ::kill(::getpid(), SIGKILL);
    return WatchedFileSystem::Rename(from, to);
  }

 private:
  std::atomic<int> left_;
};

TEST(PreparationTest, AfterAKillItGoesOnFromTheFilesThatAreDone) {
  TestDirectory directory;
  std::string text;
  JobSpec spec = SpecOf(MakeShards(directory, 60, &text), 64);
  spec.engine.threads = 2;
  spec.data.cache_directory = directory / "whole";
  const auto whole = OpenWithBytes(spec, directory);
  ASSERT_TRUE(whole.ok()) << whole.status();

  spec.data.cache_directory = directory / "cache";
  for (const int files_done : {10, 15}) {  // killed twice
    const pid_t child = fork();
    if (child == 0) {
      KillingFiles files(files_done);
      (void)OpenDataset(spec, MakeBytesTokenizer(), directory.path(), kBytesVocabulary, "", nullptr,
                        &files);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  }
  const auto before = WordFiles(directory / "cache");
  EXPECT_GE(before.size(), 22u);  // a file that both threads had begun may be missing each time
  EXPECT_LT(before.size(), 60u);
  const auto dataset = OpenWithBytes(spec, directory);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->fingerprint(), (*whole)->fingerprint());
  EXPECT_TRUE(AllText(**dataset) == text);
  const auto after = WordFiles(directory / "cache");
  EXPECT_EQ(after.size(), 60u);
  for (const auto& [name, file] : before) EXPECT_EQ(after.at(name), file) << "was made again";
  for (const auto& entry : fs::directory_iterator(directory / "cache")) {
    EXPECT_NE(entry.path().extension(), ".tmp");
  }
}

TEST(PreparationTest, ThreadsOnPiecesOfOneFileMakeTheSameBytes) {
  TestDirectory directory;
  std::mt19937 random(5);
  const std::vector<std::string> words = {"Wort ", "слово ",        "词语", "line.\r\n",
                                          "🙂",  "<|endoftext|>", "\n",   "ein Satz. "};
  std::string text;
  while (text.size() < (size_t{5} << 20)) text += words[random() % words.size()];
  const std::string path = directory.Write("a.txt", text);
  for (const int64_t threads : {1, 2, 5}) {
    JobSpec spec = SpecOf({{path, DataFormat::kText, ""}}, 256);
    spec.engine.threads = threads;
    spec.data.cache_directory = directory / std::to_string(threads);
    const auto dataset = OpenWithBytes(spec, directory);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    const auto files = WordFiles(spec.data.cache_directory);
    ASSERT_EQ(files.size(), 1u);
    const std::string name = "/" + files.begin()->first;
    EXPECT_TRUE(ReadFileOrEmpty(directory / "1" + name) ==
                ReadFileOrEmpty(spec.data.cache_directory + name))
        << threads;
  }
}

// A tokenizer whose words go on over everything but a space. One token takes the spaces before it.
std::shared_ptr<const Tokenizer> TokenizerOfEndlessWords() {
  const auto tokenizer = MakeHfTokenizer({.tokenizer_json = R"({"added_tokens": [
         {"id": 4, "content": "<eos>", "lstrip": true, "rstrip": false, "single_word": false,
          "normalized": false, "special": true}],
         "normalizer": null, "post_processor": null, "decoder": null,
         "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[^ ]+| +"},
                           "behavior": "Isolated", "invert": false},
         "model": {"type": "BPE", "unk_token": null, "merges": ["a a", "aa aa"],
                   "vocab": {"a": 0, "aa": 1, "aaaa": 2, " ": 3}}})",
                                          .tokenizer_config = R"({"eos_token": "<eos>"})"});
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

TEST(PreparationTest, AnEndlessWordIsNotHeld) {
  TestDirectory directory;
  const auto tokenizer = TokenizerOfEndlessWords();
  ASSERT_NE(tokenizer, nullptr);
  const size_t letters = 2 * kTextHeldBytesMax + 7;
  const std::string path = directory.Write("a.txt", std::string(letters, 'a'));
  JobSpec spec = SpecOf({{path, DataFormat::kText, ""}}, 1024);
  spec.data.tokenizer = "auto";
  const auto dataset = OpenDataset(spec, tokenizer, directory.path(), 5, directory / "cache",
                                   nullptr, PosixFileSystem());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  // Fours, a pair, a single one and the end.
  const size_t tokens = letters / 4 + 3;
  const auto last = (*dataset)->TrainSequence((*dataset)->train_sequences() - 1);
  ASSERT_TRUE(last.ok()) << last.status();
  const size_t behind = tokens % 1024;
  ASSERT_GE(behind, 4u);
  EXPECT_EQ((*dataset)->train_sequences(), static_cast<int64_t>(tokens / 1024 + 1));
  EXPECT_EQ(
      std::vector<int32_t>(last->input_ids.begin() + behind - 4, last->input_ids.begin() + behind),
      (std::vector<int32_t>{2, 1, 0, 4}));
  ASSERT_LT(behind, 1024u);
  EXPECT_EQ(last->input_ids.back(), 4) << "padded with the end of a text, for want of a pad token";
}

TEST(PreparationTest, WhetherATextIsHeldTooLongDoesNotDependOnTheThreads) {
  TestDirectory directory;
  const auto tokenizer = TokenizerOfEndlessWords();
  ASSERT_NE(tokenizer, nullptr);
  for (const bool too_long : {false, true}) {
    const std::string spaces(kTextHeldBytesMax - (too_long ? 0 : 1000), ' ');
    const std::string path = directory.Write("a.txt", "aaa" + spaces + std::string(2000, 'a'));
    for (const int64_t threads : {1, 3}) {
      JobSpec spec = SpecOf({{path, DataFormat::kText, ""}}, 1024);
      spec.data.tokenizer = "auto";
      spec.engine.threads = threads;
      spec.data.cache_directory = directory / std::to_string(threads);
      const auto dataset = OpenDataset(spec, tokenizer, directory.path(), 5, "", nullptr);
      EXPECT_EQ(dataset.ok(), !too_long) << threads << " " << dataset.status();
    }
  }
}

TEST(PreparationTest, ATextThatIsHeldTooLongIsRefusedWithItsPlace) {
  TestDirectory directory;
  const auto tokenizer = TokenizerOfEndlessWords();
  ASSERT_NE(tokenizer, nullptr);
  const std::string path =
      directory.Write("a.txt", "aaa" + std::string(2 * kTextHeldBytesMax, ' ') + "a");
  JobSpec spec = SpecOf({{path, DataFormat::kText, ""}}, 1024);
  spec.data.tokenizer = "auto";
  const auto dataset = OpenDataset(spec, tokenizer, directory.path(), 5, directory / "cache",
                                   nullptr, PosixFileSystem());
  EXPECT_EQ(dataset.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(dataset.status().message()),
              testing::HasSubstr("a.txt: from byte 3 on, the tokens of "));
}

}  // namespace
}  // namespace megatrain
