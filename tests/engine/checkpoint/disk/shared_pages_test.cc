#include "engine/checkpoint/disk/shared_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "engine/comm/thread_communicator.h"

namespace megatrain {
namespace {

// Files whose bytes belong to ranks at random: every page is written by one rank, and the pages
// make the files.
TEST(SharedPagesTest, EveryPageIsWrittenOnceAndWhole) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 20; ++round) {
    const int ranks = 1 + static_cast<int>(random() % 4);
    const int64_t longest = round % 2 == 0 ? 300 : 30000;  // bytes that lie together
    std::vector<std::string> files, written;
    std::vector<std::vector<std::vector<FilePiece>>> pieces(static_cast<size_t>(ranks));
    for (int file = 0; file < 2; ++file) {
      std::string content(random() % 100000 + 1, '\0');
      for (char& byte : content) byte = static_cast<char>(random());
      files.push_back(content);
    }
    written.resize(files.size());
    std::vector<std::vector<int>> writers(files.size());
    for (size_t file = 0; file < files.size(); ++file) {
      for (auto& of_rank : pieces) of_rank.emplace_back();
      const auto bytes = static_cast<int64_t>(files[file].size());
      for (int64_t at = 0; at < bytes;) {
        const int64_t length = std::min<int64_t>(
            bytes - at, static_cast<int64_t>(random() % static_cast<uint64_t>(longest)) + 1);
        pieces[random() % ranks][file].push_back({at, files[file].data() + at, length});
        at += length;
      }
      written[file].assign(files[file].size(), '\0');
      writers[file].assign(files[file].size() / kDirectAlignment + 1, 0);
    }
    std::vector<CommunicatorSet> communicators =
        CreateThreadCommunicators(ranks, absl::Seconds(60));
    std::vector<SharedPages> pages(static_cast<size_t>(ranks));
    std::vector<std::vector<std::vector<FileRange>>> own(static_cast<size_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        for (size_t file = 0; file < files.size(); ++file) {
          own[rank].push_back(pages[rank].AddFile(static_cast<int>(file),
                                                  static_cast<int64_t>(files[file].size()),
                                                  pieces[rank][file]));
        }
        const absl::Status status =
            pages[rank].Exchange(communicators[rank].control.get(), 0, ranks);
        EXPECT_TRUE(status.ok()) << status;
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int rank = 0; rank < ranks; ++rank) {
      for (size_t file = 0; file < files.size(); ++file) {
        const auto write = [&](int64_t offset, const char* data, int64_t bytes) {
          EXPECT_EQ(offset % kDirectAlignment, 0);
          EXPECT_TRUE(bytes % kDirectAlignment == 0 ||
                      offset + bytes == static_cast<int64_t>(files[file].size()));
          std::copy(data, data + bytes, written[file].begin() + offset);
          for (int64_t at = offset; at < offset + bytes; at += kDirectAlignment) {
            ++writers[file][at / kDirectAlignment];
          }
        };
        for (const FileRange& range : own[rank][file]) {
          write(range.begin, files[file].data() + range.begin, range.end - range.begin);
        }
        for (const FilePiece& page : pages[rank].PagesOf(static_cast<int>(file))) {
          write(page.offset, page.data, page.bytes);
        }
      }
    }
    for (size_t file = 0; file < files.size(); ++file) {
      EXPECT_TRUE(written[file] == files[file]);
      if (files[file].size() % kDirectAlignment == 0) writers[file].pop_back();
      for (const int count : writers[file]) EXPECT_EQ(count, 1);
    }
  }
}

TEST(SharedPagesTest, APageOfWhichBytesAreMissingIsRefused) {
  SharedPages pages;
  std::string content(100, 'x');
  EXPECT_TRUE(pages.AddFile(0, 200, {{0, content.data(), 100}}).empty());
  EXPECT_EQ(pages.Exchange(nullptr, 0, 1).code(), absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace megatrain
