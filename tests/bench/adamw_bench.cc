// AdamW against memory: bytes moved per second by AdamW over those of the best plain kernel
// that reads and writes the same streams, on the tiles of a Llama of 110 million parameters
// (hidden 768, 12 layers, tied 32k vocabulary): 1.3 GB of state and 0.4 GB of gradients, far
// beyond any cache.
//
//   adamw_bench [--threads N] [--rounds N]     the table: median rates, and the median
//                                              over interleaved rounds of AdamW's rate over
//                                              each kernel's
//   adamw_bench --serve [--threads N]          for each line `fp32` or `bf16` on standard input one
//                                              update of the whole model; prints its seconds. (For
//                                              adamw_vs_torch.py, which interleaves.)
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/processors.h"
#include "engine/base/thread_pool.h"
#include "engine/memory/host_pool.h"
#include "engine/model/model_layout.h"
#include "engine/model/tile.h"
#include "engine/optim/adamw_updater.h"
#include "tests/bench/median.h"

namespace megatrain {
namespace {

ModelDescription BenchModel() {
  UniformShape config;
  config.vocabulary = 32000;
  config.hidden = 768;
  config.layers = 12;
  config.heads = config.kv_heads = 12;
  config.head_dim = 64;
  config.intermediate = 2048;
  ModelDescription model = UniformModel(config);
  model.tied_embeddings = true;
  return model;
}

// Every tile of the model with its gradient, as the engine holds them.
class TiledState {
 public:
  TiledState(const ModelLayout& layout, DType weight_dtype) {
    HostPoolOptions options;
    for (const TileLayout& tile : layout.tiles) {
      options.capacity += HostPool::LeaseBytes(TileBytes(tile.elements, weight_dtype)) +
                          HostPool::LeaseBytes(tile.elements * 4);
    }
    pool_ = std::move(HostPool::Create(options)).value();
    for (const TileLayout& layout_of_tile : layout.tiles) {
      const int64_t n = layout_of_tile.elements;
      leases_.push_back(*pool_->Lease(HostKind::kTiles, TileBytes(n, weight_dtype)));
      std::memset(leases_.back().data(), 0, leases_.back().bytes());
      tiles_.push_back(MakeTile(&layout_of_tile, weight_dtype, leases_.back().data()));
      leases_.push_back(*pool_->Lease(HostKind::kGradientSlabs, n * 4));
      float* const gradient = static_cast<float*>(leases_.back().data());
      gradients_.push_back(gradient);
      for (int64_t i = 0; i < n; ++i) {
        gradient[i] = 1e-3f * static_cast<float>((i * 2654435761u >> 8) % 2001) - 1.0f;
        tiles_.back().exp_avg_sq[i] = 1.0f;
      }
    }
    elements_ = 0;
    for (const TileLayout& tile : layout.tiles) elements_ += tile.elements;
  }

  const std::vector<Tile>& tiles() const { return tiles_; }
  const std::vector<float*>& gradients() const { return gradients_; }
  const MemoryNodes& nodes() const { return pool_->nodes(); }
  int64_t elements() const { return elements_; }

 private:
  std::unique_ptr<HostPool> pool_;
  std::vector<HostLease> leases_;
  std::vector<Tile> tiles_;
  std::vector<float*> gradients_;
  int64_t elements_ = 0;
};

// The plain kernels: what AdamW reads and writes and next to no arithmetic, left to the compiler's
// vectoriser. `kAhead`: elements that each stream is prefetched ahead, 0 for none.
#if defined(__x86_64__)
#define MT_BENCH_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MT_BENCH_CLONES
#endif
// Elements between prefetches: two lines of FP32, one of 16-bit streams.
constexpr int64_t kChunk = 32;

#define MT_BENCH_PLAIN_FP32(NAME, AHEAD)                                                         \
  MT_BENCH_CLONES void NAME(const float* __restrict g, float* __restrict p, float* __restrict m, \
                            float* __restrict v, int64_t n) {                                    \
    for (int64_t i = 0; i + kChunk <= n; i += kChunk) {                                          \
      if (AHEAD > 0) {                                                                           \
        for (int64_t line = i + AHEAD; line < i + AHEAD + kChunk; line += 16) {                  \
          __builtin_prefetch(g + line);                                                          \
          __builtin_prefetch(p + line);                                                          \
          __builtin_prefetch(m + line);                                                          \
          __builtin_prefetch(v + line);                                                          \
        }                                                                                        \
      }                                                                                          \
      for (int64_t j = i; j < i + kChunk; ++j) {                                                 \
        p[j] += g[j];                                                                            \
        m[j] += g[j];                                                                            \
        v[j] += g[j];                                                                            \
      }                                                                                          \
    }                                                                                            \
  }
MT_BENCH_PLAIN_FP32(PlainFp32Ahead0, 0)
MT_BENCH_PLAIN_FP32(PlainFp32Ahead256, 256)
MT_BENCH_PLAIN_FP32(PlainFp32Ahead512, 512)
MT_BENCH_PLAIN_FP32(PlainFp32Ahead1024, 1024)

#define MT_BENCH_PLAIN_SPLIT(NAME, AHEAD)                                                      \
  MT_BENCH_CLONES void NAME(const float* __restrict g, uint16_t* __restrict hi,                \
                            uint16_t* __restrict lo, float* __restrict m, float* __restrict v, \
                            int64_t n) {                                                       \
    for (int64_t i = 0; i + kChunk <= n; i += kChunk) {                                        \
      if (AHEAD > 0) {                                                                         \
        __builtin_prefetch(hi + i + AHEAD);                                                    \
        __builtin_prefetch(lo + i + AHEAD);                                                    \
        for (int64_t line = i + AHEAD; line < i + AHEAD + kChunk; line += 16) {                \
          __builtin_prefetch(g + line);                                                        \
          __builtin_prefetch(m + line);                                                        \
          __builtin_prefetch(v + line);                                                        \
        }                                                                                      \
      }                                                                                        \
      for (int64_t j = i; j < i + kChunk; ++j) {                                               \
        m[j] += g[j];                                                                          \
        v[j] += g[j];                                                                          \
      }                                                                                        \
      for (int64_t j = i; j < i + kChunk; ++j) {                                               \
        hi[j] += 1;                                                                            \
        lo[j] += 1;                                                                            \
      }                                                                                        \
    }                                                                                          \
  }
MT_BENCH_PLAIN_SPLIT(PlainSplitAhead0, 0)
MT_BENCH_PLAIN_SPLIT(PlainSplitAhead256, 256)
MT_BENCH_PLAIN_SPLIT(PlainSplitAhead512, 512)
MT_BENCH_PLAIN_SPLIT(PlainSplitAhead1024, 1024)

using PlainFp32 = void (*)(const float*, float*, float*, float*, int64_t);
using PlainSplit = void (*)(const float*, uint16_t*, uint16_t*, float*, float*, int64_t);

// Runs `kernel(begin, n)` over a section of `elements` in blocks; the caller binds the streams.
void InBlocks(ThreadPool& pool, int64_t elements, int64_t block,
              absl::FunctionRef<void(int64_t begin, int64_t n)> kernel) {
  pool.ParallelFor((elements + block - 1) / block, [&](int64_t index) {
    const int64_t begin = index * block;
    kernel(begin, std::min(block, elements - begin));
  });
}

double Seconds(absl::FunctionRef<void()> work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// One update of every tile, in order. False if the state went bad.
bool UpdateAll(AdamWUpdater& updater, int64_t step, const TiledState& state) {
  AdamWStep adamw;
  adamw.step = step;
  adamw.learning_rate = 1e-4;
  adamw.weight_decay = 0.1;
  bool trusted = true;
  for (size_t i = 0; i < state.tiles().size(); ++i) {
    trusted &= updater.Update(adamw, state.gradients()[i], DType::kF32, state.tiles()[i],
                              {ElementRange{0, state.tiles()[i].layout->elements}}, state.nodes());
  }
  return trusted;
}

// Threads that the kernel moves about, and threads that each keep to a processor; an updater on
// each.
struct Pools {
  explicit Pools(int threads)
      : floating(threads),
        bound(threads, AllowedProcessors()),
        floating_updater(&floating),
        bound_updater(&bound) {}

  ThreadPool floating, bound;
  AdamWUpdater floating_updater, bound_updater;
};

void PrintTuning(const char* title, const AdamWTuning& tuning) {
  std::printf("%-6s tuned: %d elements ahead, blocks of %lld, %s\n", title,
              tuning.prefetch_elements, static_cast<long long>(tuning.block_elements),
              tuning.threads > 0 ? "half of the threads" : "all threads");
}

struct Contender {
  std::string name;
  std::function<void()> run;
  std::vector<double> seconds;
  bool plain = false;
};

// Rounds come in pairs, one in each direction. Every second pair chooses, the others measure.
enum RoundUse { kChooses, kMeasures };

// Returns the median over the rounds of `use` of a contender's seconds by AdamW's.
double RatioToAdamW(const Contender& contender, const Contender& adamw, RoundUse use) {
  std::vector<double> ratios;
  for (size_t round = 0; round < adamw.seconds.size(); ++round) {
    if (round / 2 % 2 != use) continue;
    ratios.push_back(contender.seconds[round] / adamw.seconds[round]);
  }
  return Median(ratios);
}

// AdamW is contender 0. Prints the table and the ratio to the best of the others. A host's memory
// bandwidth may change in the midst of the rounds, which would leave two medians of seconds on
// different sides of the change: the seconds of one round are compared. The best of twelve noisy
// X
void Compare(const char* title, int64_t elements, int rounds, std::vector<Contender> contenders) {
  for (int round = -1; round < 2 * rounds; ++round) {
    // Starts elsewhere and turns about each round, so that nobody always follows the same
    // neighbour.
    const int count = static_cast<int>(contenders.size());
    for (int i = 0; i < count; ++i) {
      const int place = round % 2 == 0 ? i : count - 1 - i;
      Contender& contender = contenders[(place + round + 1) % count];
      const double seconds = Seconds(contender.run);
      if (round >= 0) contender.seconds.push_back(seconds);  // the first round warms up
    }
  }
  // FP32: reads g, p, m, v and writes p, m, v. Split: the halves of p are 2 + 2 bytes. 28 either
  // way.
  const double bytes = 28.0 * static_cast<double>(elements);
  const Contender& adamw = contenders[0];
  const Contender* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  std::printf("%-6s %-34s %12s %18s  chosen by, measured\n", "", "", "", "");
  for (const Contender& contender : contenders) {
    const double rate = bytes / Median(contender.seconds);
    const double ratio = RatioToAdamW(contender, adamw, kChooses);
    std::printf("%-6s %-34s %7.2f GB/s %9.1f Mparams/s %7.3f %7.3f\n", title,
                contender.name.c_str(), rate / 1e9, rate / 28 / 1e6, ratio,
                RatioToAdamW(contender, adamw, kMeasures));
    if (contender.plain && ratio < least) {
      least = ratio;
      best = &contender;
    }
  }
  std::printf("%-6s AdamW / best plain kernel (%s): %.3f\n", title, best->name.c_str(),
              RatioToAdamW(*best, adamw, kMeasures));
}

// As on the cpu device, and as with a GPU.
std::vector<Contender> AdamWContenders(Pools& pools, const TiledState& state, int64_t* step) {
  std::vector<Contender> contenders;
  for (const auto& [name, updater] : {std::pair("AdamW", &pools.floating_updater),
                                      std::pair("AdamW, threads bound", &pools.bound_updater)}) {
    const DType dtype = state.tiles()[0].weight_dtype;
    while (!updater->tuned(dtype)) UpdateAll(*updater, ++*step, state);
    PrintTuning(name, updater->tuning(dtype));
    contenders.push_back(
        {name, [updater = updater, &state, step] { UpdateAll(*updater, ++*step, state); }, {}});
  }
  return contenders;
}

std::vector<Contender> Fp32Contenders(Pools& pools, const TiledState& state, int64_t* step) {
  std::vector<Contender> contenders = AdamWContenders(pools, state, step);
  ThreadPool& pool = pools.floating;
  const std::pair<const char*, PlainFp32> kernels[] = {{"no prefetch", PlainFp32Ahead0},
                                                       {"1 KB ahead", PlainFp32Ahead256},
                                                       {"2 KB ahead", PlainFp32Ahead512},
                                                       {"4 KB ahead", PlainFp32Ahead1024}};
  for (const int64_t block : {int64_t{1} << 14, int64_t{1} << 16, int64_t{1} << 19}) {
    for (const auto& [name, kernel] : kernels) {
      contenders.push_back(
          {std::string("plain, ") + name + ", blocks of " + std::to_string(block),
           [&pool, &state, block, kernel = kernel] {
             for (size_t t = 0; t < state.tiles().size(); ++t) {
               const Tile& tile = state.tiles()[t];
               const float* const g = state.gradients()[t];
               InBlocks(pool, tile.layout->elements, block, [&](int64_t begin, int64_t n) {
                 kernel(g + begin, static_cast<float*>(tile.weights) + begin, tile.exp_avg + begin,
                        tile.exp_avg_sq + begin, n);
               });
             }
           },
           {},
           true});
    }
  }
  return contenders;
}

std::vector<Contender> SplitContenders(Pools& pools, const TiledState& state, int64_t* step) {
  std::vector<Contender> contenders = AdamWContenders(pools, state, step);
  ThreadPool& pool = pools.floating;
  const std::pair<const char*, PlainSplit> kernels[] = {{"no prefetch", PlainSplitAhead0},
                                                        {"1 KB ahead", PlainSplitAhead256},
                                                        {"2 KB ahead", PlainSplitAhead512},
                                                        {"4 KB ahead", PlainSplitAhead1024}};
  for (const int64_t block : {int64_t{1} << 14, int64_t{1} << 16, int64_t{1} << 19}) {
    for (const auto& [name, kernel] : kernels) {
      contenders.push_back(
          {std::string("plain, ") + name + ", blocks of " + std::to_string(block),
           [&pool, &state, block, kernel = kernel] {
             for (size_t t = 0; t < state.tiles().size(); ++t) {
               const Tile& tile = state.tiles()[t];
               const float* const g = state.gradients()[t];
               InBlocks(pool, tile.layout->elements, block, [&](int64_t begin, int64_t n) {
                 kernel(g + begin, static_cast<uint16_t*>(tile.weights) + begin,
                        reinterpret_cast<uint16_t*>(tile.remainder) + begin, tile.exp_avg + begin,
                        tile.exp_avg_sq + begin, n);
               });
             }
           },
           {},
           true});
    }
  }
  return contenders;
}

int Serve(AdamWUpdater& updater, const ModelLayout& layout) {
  std::unique_ptr<TiledState> fp32, bf16;
  int64_t step = 0;
  for (std::string line; std::getline(std::cin, line);) {
    const bool split = line == "bf16";
    if (!split && line != "fp32") {
      std::fprintf(stderr, "unknown command '%s': fp32 or bf16\n", line.c_str());
      return 2;
    }
    std::unique_ptr<TiledState>& state = split ? bf16 : fp32;
    if (!state) {
      state = std::make_unique<TiledState>(layout, split ? DType::kBF16 : DType::kF32);
    }
    const double seconds = Seconds([&] { UpdateAll(updater, ++step, *state); });
    std::printf("%.9f %lld\n", seconds, static_cast<long long>(layout.parameters));
    std::fflush(stdout);
  }
  return 0;
}

int Main(int argc, char** argv) {
  int threads = 2, rounds = 21;
  bool serve = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--serve") {
      serve = true;
    } else if (argument == "--threads" && i + 1 < argc) {
      threads = std::stoi(argv[++i]);
    } else if (argument == "--rounds" && i + 1 < argc) {
      rounds = std::stoi(argv[++i]);
    } else {
      std::fprintf(stderr, "usage: adamw_bench [--threads N] [--rounds N] [--serve]\n");
      return 2;
    }
  }
  Pools pools(threads);
  const ModelLayout layout = BuildModelLayout(BenchModel());
  if (serve) return Serve(pools.floating_updater, layout);
  std::printf(
      "%lld parameters, %d threads, medians of %d interleaved rounds, after as many that choose\n",
      static_cast<long long>(layout.parameters), threads, rounds);
  int64_t step = 0;
  {
    const TiledState state(layout, DType::kF32);
    Compare("fp32", state.elements(), rounds, Fp32Contenders(pools, state, &step));
  }
  const TiledState state(layout, DType::kBF16);
  Compare("bf16", state.elements(), rounds, SplitContenders(pools, state, &step));
  return 0;
}

}  // namespace
}  // namespace megatrain

int main(int argc, char** argv) { return megatrain::Main(argc, argv); }
