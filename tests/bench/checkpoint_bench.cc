// Saves and loads checkpoints beside fio's writes and reads of as many bytes, with the same block
// size and number of jobs, past the page cache.
//
//   checkpoint_bench --directory DIR [--gib 4] [--rounds 3] [--hidden 2048]
//
// DIR is on the disk to measure and needs the bytes once. --hidden is the model's, a multiple of
// 128: small ones have small tiles. In each round fio writes and reads its files, then a checkpoint
// is saved, which writes the tiles and reads them back, and loaded. Printed are bytes a second,
// their ratio to fio's of the same round, and the median of the ratios. Exits with 1 if a median is
// below its bound. Without fio in PATH there are no ratios.
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status.h"
#include "engine/base/watched_file_system.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/disk/concurrent_for.h"
#include "engine/checkpoint/disk/transfer.h"
#include "engine/model/model_layout.h"

namespace megatrain {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBound = 0.8;
constexpr char kConfigJson[] = R"({"model_type": "llama"})";

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Notes when the last file in blocks was on stable storage.
class SyncTimes : public WatchedFileSystem {
 public:
  SyncTimes() : WatchedFileSystem(PosixFileSystem(), [] { return absl::OkStatus(); }) {}
  absl::StatusOr<std::unique_ptr<BlockFile>> NewBlockFile(const std::string& path,
                                                          int64_t bytes) override {
    MT_ASSIGN_OR_RETURN(std::unique_ptr<BlockFile> file,
                        PosixFileSystem()->NewBlockFile(path, bytes));
    return std::make_unique<File>(std::move(file), &last_);
  }
  Clock::time_point last() const { return last_; }

 private:
  class File : public BlockFile {
   public:
    File(std::unique_ptr<BlockFile> file, std::atomic<Clock::time_point>* last)
        : file_(std::move(file)), last_(last) {}
    absl::Status Write(int64_t offset, const void* data, int64_t bytes) override {
      return file_->Write(offset, data, bytes);
    }
    absl::Status Sync() override {
      const absl::Status status = file_->Sync();
      *last_ = Clock::now();
      return status;
    }
    absl::Status Close() override { return file_->Close(); }
    bool direct() const override { return file_->direct(); }

   private:
    const std::unique_ptr<BlockFile> file_;
    std::atomic<Clock::time_point>* const last_;
  };
  std::atomic<Clock::time_point> last_{};
};

// A Llama whose state has `bytes` or a layer more.
ModelLayout LayoutOf(int64_t bytes, int64_t hidden) {
  UniformShape config;
  config.vocabulary = 32000;
  config.hidden = hidden;
  config.head_dim = 128;
  config.heads = config.kv_heads = hidden / 128;
  config.intermediate = hidden / 4 * 11;
  config.max_positions = 4096;
  config.layers = 1;
  ModelLayout layout = BuildModelLayout(UniformModel(config));
  while (12 * layout.parameters < bytes) {
    ++config.layers;
    layout = BuildModelLayout(UniformModel(config));
  }
  return layout;
}

// Bytes a second of fio, nullopt without it. `mode` is "write" or "read"; both use the same files.
std::optional<double> Fio(const std::string& directory, const char* mode, int64_t bytes) {
  const std::string command = absl::StrFormat(
      "fio --name=checkpoint_bench --directory=%s --rw=%s --bs=%d --numjobs=%d --size=%d "
      "--direct=1 "
      "--ioengine=psync --end_fsync=1 --group_reporting --output-format=json 2>/dev/null",
      directory, mode, kTransferBlockBytes, kTransferThreads,
      bytes / kTransferThreads / kTransferBlockBytes * kTransferBlockBytes);
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return std::nullopt;
  std::string text;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof(buffer), pipe)) text.append(buffer, got);
  pclose(pipe);
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return std::nullopt;
  return json["jobs"][0][mode]["bw_bytes"].get<double>();
}

struct Seconds {
  double taken = 0;   // until the last tile's memory was free
  double synced = 0;  // until the tiles were on stable storage
  double saved = 0;   // until the checkpoint was verified and had its name
  double loaded = 0;
  double processor = 0;  // of the save, in all threads
};

double ProcessorSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

absl::StatusOr<Seconds> SaveAndLoad(const std::string& directory, const ModelLayout& layout,
                                    const std::vector<Tile>& tiles) {
  SyncTimes files;
  CheckpointState state;
  state.step = 1;
  state.weight_dtype = DType::kBF16;
  state.model_fingerprint = ModelFingerprint(layout);
  Seconds seconds;
  const double processor = ProcessorSeconds();
  const Clock::time_point start = Clock::now();
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointWriter> writer,
                      CheckpointWriter::Begin(directory + "/checkpoints", layout, state,
                                              directory + "/model", &files));
  for (int i = 0; i < layout.tile_count(); ++i) {
    MT_RETURN_IF_ERROR(writer->WriteTile(i, {tiles[i]}));
  }
  seconds.taken = SecondsSince(start);
  MT_ASSIGN_OR_RETURN(const std::string checkpoint, writer->Finish(Retention()));
  seconds.saved = SecondsSince(start);
  seconds.synced = std::chrono::duration<double>(files.last() - start).count();
  seconds.processor = ProcessorSeconds() - processor;
  for (const std::string& note : writer->notes()) std::printf("%s\n", note.c_str());
  const Clock::time_point load = Clock::now();
  MT_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(checkpoint, &files));
  MT_RETURN_IF_ERROR(ConcurrentFor(
      layout.tile_count(), kTransferThreads, [](int) { return absl::OkStatus(); },
      [&](int i) {
        return LoadCheckpointTile(checkpoint, manifest, layout, i, tiles[i], &files);
      }));
  seconds.loaded = SecondsSince(load);
  return seconds;
}

// A rate with its ratios to fio's, of every round.
class Row {
 public:
  Row(const char* name, bool bounded) : name_(name), bounded_(bounded) {}
  void Add(double rate, std::optional<double> fio) {
    std::printf("  %-34s %6.0f MB/s", name_, rate / 1e6);
    if (fio.has_value()) {
      std::printf("  fio %6.0f MB/s  ratio %.3f", *fio / 1e6, rate / *fio);
      ratios_.push_back(rate / *fio);
    }
    std::printf("\n");
  }
  // False if the bound is missed.
  bool PrintMedian() {
    if (ratios_.empty()) return true;
    std::sort(ratios_.begin(), ratios_.end());
    const double median = ratios_[ratios_.size() / 2];
    std::printf("%-36s median of the ratios %.3f", name_, median);
    if (bounded_) std::printf("  (must reach %.2f)", kBound);
    std::printf("\n");
    return !bounded_ || median >= kBound;
  }

 private:
  const char* const name_;
  const bool bounded_;
  std::vector<double> ratios_;
};

absl::StatusOr<bool> Run(const std::string& directory, int64_t bytes_wanted, int64_t hidden,
                         int rounds) {
  const ModelLayout layout = LayoutOf(bytes_wanted, hidden);
  std::vector<std::vector<uint64_t>> blocks;
  std::vector<Tile> tiles;
  uint64_t bits = 1;
  for (const TileLayout& tile : layout.tiles) {
    auto& block = blocks.emplace_back(TileBytes(tile.elements, DType::kBF16) / 8 + 1);
    for (uint64_t& word : block) word = bits = bits * 6364136223846793005u + 1442695040888963407u;
    tiles.push_back(MakeTile(&tile, DType::kBF16, block.data()));
  }
  FileSystem* const files = PosixFileSystem();
  const std::string scratch = directory + "/checkpoint_bench";
  MT_RETURN_IF_ERROR(files->CreateDirectories(scratch + "/model"));
  MT_RETURN_IF_ERROR(WriteFileSynced(files, scratch + "/model/config.json", kConfigJson));
  const auto bytes = static_cast<double>(12 * layout.parameters);
  std::printf("%d tiles, %.2f GB; blocks of %d MiB, %d at a time\n", layout.tile_count(),
              bytes / 1e9, static_cast<int>(kTransferBlockBytes >> 20), kTransferThreads);
  Row taken("tiles taken", false), written("tiles written and synced", true);
  Row saved("saved: written and read back", true), loaded("loaded and verified", true);
  for (int round = 0; round < rounds; ++round) {
    const std::optional<double> write = Fio(scratch, "write", static_cast<int64_t>(bytes));
    const std::optional<double> read = Fio(scratch, "read", static_cast<int64_t>(bytes));
    MT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files->ListDirectory(scratch));
    for (const std::string& name : names) {
      if (name != "model") MT_RETURN_IF_ERROR(files->RemoveTree(scratch + "/" + name));
    }
    MT_ASSIGN_OR_RETURN(const Seconds seconds, SaveAndLoad(scratch, layout, tiles));
    MT_RETURN_IF_ERROR(files->RemoveTree(scratch + "/checkpoints"));
    std::printf("round %d: %.1f s of processors for the save of %.1f s\n", round + 1,
                seconds.processor, seconds.saved);
    taken.Add(bytes / seconds.taken, write);
    written.Add(bytes / seconds.synced, write);
    saved.Add(bytes / seconds.saved,
              write && read ? std::optional(1 / (1 / *write + 1 / *read)) : std::nullopt);
    loaded.Add(bytes / seconds.loaded, read);
  }
  MT_RETURN_IF_ERROR(files->RemoveTree(scratch));
  bool reached = taken.PrintMedian();
  reached = written.PrintMedian() && reached;
  reached = saved.PrintMedian() && reached;
  return loaded.PrintMedian() && reached;
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) {
  std::string directory;
  int64_t gib = 4, hidden = 2048;
  int rounds = 3;
  bool sound = true;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i], value = i + 1 < argc ? argv[i + 1] : "";
    const bool known = (name == "--directory" && !(directory = value).empty()) ||
                       (name == "--gib" && absl::SimpleAtoi(value, &gib) && gib > 0) ||
                       (name == "--hidden" && absl::SimpleAtoi(value, &hidden) && hidden >= 128 &&
                        hidden % 128 == 0) ||
                       (name == "--rounds" && absl::SimpleAtoi(value, &rounds) && rounds > 0);
    sound = sound && known;
  }
  if (!sound || directory.empty()) {
    std::fprintf(stderr,
                 "checkpoint_bench --directory DIR [--gib 4] [--rounds 3] [--hidden 2048]\n");
    return 2;
  }
  const absl::StatusOr<bool> reached = megatrain::Run(directory, gib << 30, hidden, rounds);
  if (!reached.ok()) {
    std::fprintf(stderr, "%s\n", reached.status().ToString().c_str());
    return 2;
  }
  return *reached ? 0 : 1;
}
