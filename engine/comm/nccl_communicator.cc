#include "engine/comm/nccl_communicator.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/comm/collective_call.h"
#include "engine/comm/nccl_session.h"
#include "engine/comm/rank_grid.h"
#include "engine/comm/sum_ranks.h"

namespace megatrain {
namespace {

// Scratch holds a piece from each source of a sum but this rank, in steps of 256 bytes, so that
// kernels can move whole packs.
constexpr int64_t kPieceBytesStep = 256;
// NCCL needs pieces of about a megabyte to use a link well, and gains little beyond this in all.
constexpr int64_t kPieceBytesMin = kMiB;
constexpr int64_t kScratchBytes = 64 * kMiB;

int64_t PieceBytes(int64_t scratch_bytes, int ranks) {
  return scratch_bytes / std::max(1, ranks - 1) / kPieceBytesStep * kPieceBytesStep;
}

absl::Status CheckScratch(int64_t bytes, Communicator* bootstrap) {
  if (const int64_t min = NcclScratchBytesMin(bootstrap->ranks()); bytes < min) {
    return absl::InvalidArgumentError(absl::StrCat("NCCL's scratch must have ", FormatBytes(min),
                                                   " at least, not ", FormatBytes(bytes)));
  }
  const double value = static_cast<double>(bytes);
  MT_ASSIGN_OR_RETURN(const std::vector<double> all, bootstrap->GatherValues({value}));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == value) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "NCCL's scratch has ", bytes, " bytes on rank ", bootstrap->rank(), " and ",
        static_cast<int64_t>(all[rank]), " on rank ", rank, "; all ranks must run the same plan"));
  }
  return absl::OkStatus();
}

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<Communicator> bootstrap, std::unique_ptr<NcclSession> session,
                   NcclApi* api, Device* device, void* scratch, int64_t scratch_bytes,
                   int group_ranks)
      : bootstrap_(std::move(bootstrap)),
        session_(std::move(session)),
        api_(*api),
        device_(*device),
        grid_(
            {.rank = bootstrap_->rank(), .ranks = bootstrap_->ranks(), .group_ranks = group_ranks}),
        scratch_(static_cast<float*>(scratch)),
        piece_floats_(PieceBytes(scratch_bytes, bootstrap_->ranks()) / int64_t{sizeof(float)}) {}

  int rank() const override { return bootstrap_->rank(); }
  int ranks() const override { return bootstrap_->ranks(); }

  absl::Status AllGather(Stream& stream, void* data, absl::Span<const int64_t> cuts) override {
    MT_ASSIGN_OR_RETURN(CollectiveCall call, PartsCall(Operation::kAllGather, cuts, ranks(), 1));
    MT_RETURN_IF_ERROR(bootstrap_->status());
    call.number = operations_++;
    if (ranks() == 1 || call.bytes == 0) return absl::OkStatus();
    char* const bytes = static_cast<char*>(data);
    const Piece own = PartOf(cuts, rank());
    MT_RETURN_IF_ERROR(session_->Group(stream, call, [&](void* communicator) {
      if (HasEqualParts(cuts)) {
        return api_.AllGather(communicator, bytes + own.begin, bytes + cuts.front(), own.size,
                              stream.native_handle());
      }
      int error = kNcclSuccess;
      for (int root = 0; root < ranks() && error == kNcclSuccess; ++root) {
        const Piece part = PartOf(cuts, root);
        if (part.size == 0) continue;
        error = api_.Broadcast(communicator, bytes + part.begin, part.size, root,
                               stream.native_handle());
      }
      return error;
    }));
    traffic_.gathered_bytes += own.size * (ranks() - 1);
    return absl::OkStatus();
  }

  absl::Status ReduceScatter(Stream& stream, float* data, absl::Span<const int64_t> cuts) override {
    MT_ASSIGN_OR_RETURN(CollectiveCall call,
                        PartsCall(Operation::kReduceScatter, cuts, ranks(), sizeof(float)));
    MT_RETURN_IF_ERROR(bootstrap_->status());
    call.number = operations_++;
    if (ranks() == 1) return absl::OkStatus();
    int64_t longest = 0;
    for (int other = 0; other < ranks(); ++other) {
      longest = std::max(longest, PartOf(cuts, other).size);
    }
    // The levels work on different pieces at once: a group moves a piece inside and, outside, the
    // one before, whose sums inside are behind the group before.
    const int64_t lag = grid_.two_levels() ? 1 : 0;
    const int64_t pieces = (longest + piece_floats_ - 1) / piece_floats_;
    const std::vector<RankGrid::Sum> inside = grid_.SumsInside();
    for (int64_t step = 0; step < pieces + lag; ++step) {
      MT_RETURN_IF_ERROR(session_->Group(stream, call, [&](void* communicator) {
        return Exchange(communicator, stream, data, cuts, step, step - lag);
      }));
      absl::Status summed;
      for (const RankGrid::Sum& sum : inside) {
        summed.Update(Sum(stream, data, PieceOf(cuts, sum.part, step), sum));
      }
      const Piece own = PieceOf(cuts, rank(), step - lag);
      summed.Update(Sum(stream, data, own, grid_.SumOutside()));
      if (!summed.ok()) {
        Abort(summed);  // the others cannot know of it
        return summed;
      }
    }
    traffic_.reduced_bytes += call.bytes - PartOf(cuts, rank()).size * int64_t{sizeof(float)};
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<double>> GatherValues(absl::Span<const double> values) override {
    return bootstrap_->GatherValues(values);
  }
  absl::Status Broadcast(void* data, int64_t bytes, int root) override {
    MT_RETURN_IF_ERROR(bootstrap_->Broadcast(data, bytes, root));
    if (rank() == root) traffic_.gathered_bytes += bytes * (ranks() - 1);
    return absl::OkStatus();
  }
  absl::Status Barrier() override { return bootstrap_->Barrier(); }
  void Abort(const absl::Status& cause) override { bootstrap_->Abort(cause); }
  absl::Status status() override { return bootstrap_->status(); }
  Traffic traffic() const override { return traffic_; }

 private:
  // A range of the data of an operation, in its own units: bytes, or floats.
  struct Piece {
    int64_t begin = 0, size = 0;
  };

  static Piece PartOf(absl::Span<const int64_t> cuts, int rank) {
    const int64_t begin = cuts[static_cast<size_t>(rank)];
    return {begin, cuts[static_cast<size_t>(rank) + 1] - begin};
  }
  bool HasEqualParts(absl::Span<const int64_t> cuts) const {
    for (int other = 1; other < ranks(); ++other) {
      if (PartOf(cuts, other).size != PartOf(cuts, 0).size) return false;
    }
    return true;
  }
  // A part's piece of this number. Empty before its begin and after its end.
  Piece PieceOf(absl::Span<const int64_t> cuts, int rank, int64_t piece) const {
    const Piece part = PartOf(cuts, rank);
    if (piece < 0) return {part.begin, 0};
    const int64_t begin = std::min(piece * piece_floats_, part.size);
    return {part.begin + begin, std::min(part.size - begin, piece_floats_)};
  }
  // Returns where a piece of another source arrives.
  float* Arriving(int source) const {
    return scratch_ + (source < rank() ? source : source - 1) * piece_floats_;
  }

  // Sends the other ranks pieces of the parts that they sum, and receives those of this rank's.
  int Exchange(void* communicator, Stream& stream, const float* data,
               absl::Span<const int64_t> cuts, int64_t piece_inside, int64_t piece_outside) {
    const auto bytes = [](const Piece& piece) { return piece.size * int64_t{sizeof(float)}; };
    int error = kNcclSuccess;
    for (int peer = 0; peer < ranks(); ++peer) {
      const bool inside = grid_.IsInside(peer);
      const int64_t piece = inside ? piece_inside : piece_outside;
      for (const RankGrid::Share& share : grid_.SharesWith(peer)) {
        const Piece own = PieceOf(cuts, share.mine, piece),
                    theirs = PieceOf(cuts, share.theirs, piece);
        if (own.size > 0 && error == kNcclSuccess) {
          error = api_.Receive(communicator, Arriving(share.theirs), bytes(own), peer,
                               stream.native_handle());
        }
        if (theirs.size > 0 && error == kNcclSuccess) {
          error = api_.Send(communicator, data + theirs.begin, bytes(theirs), peer,
                            stream.native_handle());
          traffic_.outside_bytes += inside ? 0 : bytes(theirs);
        }
      }
    }
    return error;
  }

  // Adds the pieces that have arrived to this rank's, in the order of RankAdditions. The last
  // addition, whose sum belongs to the first source there, writes into this rank's data.
  absl::Status Sum(Stream& stream, float* data, const Piece& own, const RankGrid::Sum& sum) {
    if (own.size == 0) return absl::OkStatus();
    const auto place = [&](int of) {
      const int source = sum.sources[static_cast<size_t>(of)];
      return source == sum.part ? data + own.begin : Arriving(source);
    };
    const std::vector<RankAddition> additions = RankAdditions(static_cast<int>(sum.sources.size()));
    for (size_t i = 0; i < additions.size(); ++i) {
      const bool last = i + 1 == additions.size();
      MT_RETURN_IF_ERROR(device_.kernels().Add(
          stream, {.rows = 1,
                   .width = own.size,
                   .a = {.data = place(additions[i].to), .stride = own.size},
                   .b = {.data = place(additions[i].from), .stride = own.size},
                   .y = last ? data + own.begin : place(additions[i].to),
                   .y_stride = own.size}));
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<Communicator> bootstrap_;
  const std::unique_ptr<NcclSession> session_;  // uses the one before
  NcclApi& api_;
  Device& device_;
  const RankGrid grid_;
  float* const scratch_;  // [sources but this rank][piece_floats_]
  const int64_t piece_floats_;
  int64_t operations_ = 0;
  Traffic traffic_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> CreateNcclCommunicator(
    std::shared_ptr<Communicator> bootstrap, NcclApi* api, Device* device, void* scratch,
    int64_t scratch_bytes, const NcclPatience& patience, int group_ranks) {
  if (const absl::Status status = CheckScratch(scratch_bytes, bootstrap.get()); !status.ok()) {
    bootstrap->Abort(status);
    return bootstrap->status();
  }
  MT_ASSIGN_OR_RETURN(std::unique_ptr<NcclSession> session,
                      NcclSession::Open(api, device, bootstrap.get(), patience));
  return std::make_unique<NcclCommunicator>(std::move(bootstrap), std::move(session), api, device,
                                            scratch, scratch_bytes, group_ranks);
}

int64_t NcclScratchBytes(int ranks) {
  return (ranks - 1) * std::max(kPieceBytesMin, PieceBytes(kScratchBytes, ranks));
}
int64_t NcclScratchBytesMin(int ranks) { return (ranks - 1) * kPieceBytesStep; }

}  // namespace megatrain
