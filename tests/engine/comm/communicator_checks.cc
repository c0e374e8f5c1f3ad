#include "tests/engine/comm/communicator_checks.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

uint64_t Mixed(uint64_t seed, uint64_t rank, uint64_t index) {
  uint64_t x = seed + rank * 0x9e3779b97f4a7c15u + index * 0xd1342543de82ef95u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Of magnitudes so different that another order of additions gives other bits.
float Value(uint64_t seed, int rank, int64_t index) {
  const uint64_t bits = Mixed(seed, static_cast<uint64_t>(rank), static_cast<uint64_t>(index));
  const float unit = static_cast<float>(bits >> 40) / static_cast<float>(1 << 24) - 0.5f;
  return std::ldexp(unit, static_cast<int>(bits % 24));
}

// The sum in the order that communicator.h promises, by its definition.
float TreeSum(uint64_t seed, int first, int ranks, int64_t index) {
  if (ranks == 1) return Value(seed, first, index);
  int left = 1;
  while (left * 2 < ranks) left *= 2;
  return TreeSum(seed, first, left, index) + TreeSum(seed, first + left, ranks - left, index);
}

class Checks {
 public:
  Checks(Communicator& communicator, Stream& stream, const DeviceBuffers& buffers, uint64_t seed,
         const TimesOutside& outside)
      : c_(communicator), stream_(stream), buffers_(buffers), random_(seed), outside_(outside) {}

  absl::Status Run(int64_t elements_max) {
    for (const int64_t elements :
         {int64_t{0}, int64_t{1}, int64_t{5}, int64_t{1024}, int64_t{4099}, elements_max}) {
      for (const bool even : {true, false}) {
        const std::vector<int64_t> cuts = Cuts(elements, even);
        MT_RETURN_IF_ERROR(ReduceScatter(cuts));
        MT_RETURN_IF_ERROR(AllGather(cuts));
        MT_RETURN_IF_ERROR(Values(elements % 100));
      }
    }
    for (int root = 0; root < c_.ranks(); ++root) MT_RETURN_IF_ERROR(Broadcast(root));
    MT_RETURN_IF_ERROR(c_.Barrier());
    return Counted();
  }

 private:
  // The same on all ranks. Uneven ones begin behind 0, and some are empty.
  std::vector<int64_t> Cuts(int64_t elements, bool even) {
    std::vector<int64_t> cuts = {even ? 0 : elements / 7};
    for (int rank = 1; rank < c_.ranks(); ++rank) {
      cuts.push_back(even ? elements / c_.ranks() * rank
                          : std::uniform_int_distribution<int64_t>(cuts[0], elements)(random_));
    }
    cuts.push_back(even ? elements / c_.ranks() * c_.ranks() : elements);
    if (!even && c_.ranks() > 2) cuts[1] = cuts[2];
    std::sort(cuts.begin(), cuts.end());
    return cuts;
  }

  absl::Status ReduceScatter(const std::vector<int64_t>& cuts) {
    const uint64_t seed = random_();
    std::vector<char> content(static_cast<size_t>(cuts.back()) * sizeof(float));
    float* const values = reinterpret_cast<float*>(content.data());
    for (int64_t i = 0; i < cuts.back(); ++i) values[i] = Value(seed, c_.rank(), i);
    void* const buffer = buffers_.make(content);
    MT_RETURN_IF_ERROR(c_.ReduceScatter(stream_, static_cast<float*>(buffer), cuts));
    content = buffers_.read(buffer, static_cast<int64_t>(content.size()));
    MT_RETURN_IF_ERROR(c_.status());
    const size_t rank = static_cast<size_t>(c_.rank());
    for (int64_t i = cuts[rank]; i < cuts[rank + 1]; ++i) {
      const float expected = TreeSum(seed, 0, c_.ranks(), i);
      if (std::memcmp(content.data() + i * 4, &expected, sizeof(float)) != 0) {
        return Wrong("ReduceScatter", cuts, i);
      }
    }
    reduced_bytes_ += (cuts.back() - cuts.front()) * 4;
    return absl::OkStatus();
  }

  absl::Status AllGather(const std::vector<int64_t>& cuts) {
    const uint64_t seed = random_();
    const size_t rank = static_cast<size_t>(c_.rank());
    gathered_bytes_ += cuts.back() - cuts.front();
    std::vector<char> content(static_cast<size_t>(cuts.back()));
    for (int64_t i = cuts[rank]; i < cuts[rank + 1]; ++i) {
      content[static_cast<size_t>(i)] = static_cast<char>(Mixed(seed, 0, static_cast<uint64_t>(i)));
    }
    void* const buffer = buffers_.make(content);
    MT_RETURN_IF_ERROR(c_.AllGather(stream_, buffer, cuts));
    content = buffers_.read(buffer, static_cast<int64_t>(content.size()));
    MT_RETURN_IF_ERROR(c_.status());
    for (int64_t i = cuts.front(); i < cuts.back(); ++i) {
      if (content[static_cast<size_t>(i)] !=
          static_cast<char>(Mixed(seed, 0, static_cast<uint64_t>(i)))) {
        return Wrong("AllGather", cuts, i);
      }
    }
    return absl::OkStatus();
  }

  absl::Status Values(int64_t count) {
    const uint64_t seed = random_();
    std::vector<double> expected, own;
    for (int rank = 0; rank < c_.ranks(); ++rank) {
      for (int64_t i = 0; i < count; ++i) {
        expected.push_back(static_cast<double>(
            Mixed(seed, static_cast<uint64_t>(rank), static_cast<uint64_t>(i))));
        if (rank == c_.rank()) own.push_back(expected.back());
      }
    }
    MT_ASSIGN_OR_RETURN(const std::vector<double> all, c_.GatherValues(own));
    return all == expected ? absl::OkStatus() : Wrong("GatherValues", {count}, 0);
  }

  absl::Status Broadcast(int root) {
    std::vector<uint64_t> expected(1000), data(1000);
    for (uint64_t& value : expected) value = random_();
    if (c_.rank() == root) data = expected;
    const int64_t bytes = static_cast<int64_t>(data.size() * sizeof(uint64_t));
    MT_RETURN_IF_ERROR(c_.Broadcast(data.data(), bytes, root));
    gathered_bytes_ += bytes;
    return data == expected ? absl::OkStatus() : Wrong("Broadcast", {root}, 0);
  }

  // Every rank but one receives all data of an operation, or sends it, whatever the ways.
  absl::Status Counted() {
    const Traffic traffic = c_.traffic();
    MT_ASSIGN_OR_RETURN(const std::vector<double> all,
                        c_.GatherValues({static_cast<double>(traffic.gathered_bytes),
                                         static_cast<double>(traffic.reduced_bytes),
                                         static_cast<double>(traffic.outside_bytes)}));
    std::vector<double> sums(3);
    for (size_t i = 0; i < all.size(); ++i) sums[i % 3] += all[i];
    const int others = c_.ranks() - 1;
    const std::vector<double> expected = {
        static_cast<double>(gathered_bytes_ * others), static_cast<double>(reduced_bytes_ * others),
        static_cast<double>(gathered_bytes_ * outside_.gathers +
                            reduced_bytes_ * outside_.reductions)};
    if (sums == expected) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("the ranks counted ", absl::StrJoin(sums, ", "),
                                            " bytes, not ", absl::StrJoin(expected, ", ")));
  }

  absl::Status Wrong(const char* operation, const std::vector<int64_t>& cuts, int64_t index) {
    return absl::InternalError(absl::StrCat(operation, " of ", c_.ranks(), " ranks: rank ",
                                            c_.rank(), " has a wrong element ", index,
                                            "; cuts: ", absl::StrJoin(cuts, ", ")));
  }

  Communicator& c_;
  Stream& stream_;
  const DeviceBuffers& buffers_;
  std::mt19937_64 random_;
  const TimesOutside outside_;
  int64_t gathered_bytes_ = 0, reduced_bytes_ = 0;  // of the data of all operations
};

}  // namespace

DeviceBuffers HostBuffers() {
  const auto buffers = std::make_shared<std::vector<std::vector<char>>>();
  return {.make = [buffers](const std::vector<char>& content) -> void* {
            buffers->push_back(content);
            return buffers->back().data();
          },
          .read =
              [](void* buffer, int64_t bytes) {
                const char* const first = static_cast<const char*>(buffer);
                return std::vector<char>(first, first + bytes);
              }};
}

absl::Status CheckOperations(Communicator& communicator, Stream& stream,
                             const DeviceBuffers& buffers, uint64_t seed, int64_t elements_max,
                             const TimesOutside& outside) {
  return Checks(communicator, stream, buffers, seed, outside).Run(elements_max);
}

}  // namespace megatrain
