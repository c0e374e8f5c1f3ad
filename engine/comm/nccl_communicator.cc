#include "engine/comm/nccl_communicator.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/comm/collective_call.h"
#include "engine/comm/nccl_session.h"
#include "engine/comm/sum_ranks.h"

namespace megatrain {
namespace {

// Scratch holds a piece from each other rank, in steps of 256 bytes, so that kernels can move whole
// packs.
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
  NcclCommunicator(std::unique_ptr<Communicator> bootstrap, std::unique_ptr<NcclSession> session,
                   NcclApi* api, Device* device, void* scratch, int64_t scratch_bytes)
      : bootstrap_(std::move(bootstrap)),
        session_(std::move(session)),
        api_(*api),
        device_(*device),
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
    for (int64_t begin = 0; begin < longest; begin += piece_floats_) {
      MT_RETURN_IF_ERROR(session_->Group(stream, call, [&](void* communicator) {
        return Exchange(communicator, stream, data, cuts, begin);
      }));
      MT_RETURN_IF_ERROR(Sum(stream, data, PieceOf(cuts, rank(), begin)));
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
  // The floats of a rank's part that are moved at a time, from `begin` on.
  Piece PieceOf(absl::Span<const int64_t> cuts, int rank, int64_t begin) const {
    const Piece part = PartOf(cuts, rank);
    begin = std::min(begin, part.size);
    return {part.begin + begin, std::min(part.size - begin, piece_floats_)};
  }
  // Where a piece arrives from another rank.
  float* Arriving(int from) const {
    return scratch_ + (from < rank() ? from : from - 1) * piece_floats_;
  }

  // Sends the other ranks the pieces of their parts, and receives this rank's from them.
  int Exchange(void* communicator, Stream& stream, const float* data,
               absl::Span<const int64_t> cuts, int64_t begin) {
    const auto bytes = [](const Piece& piece) { return piece.size * int64_t{sizeof(float)}; };
    const Piece own = PieceOf(cuts, rank(), begin);
    int error = kNcclSuccess;
    for (int peer = 0; peer < ranks() && error == kNcclSuccess; ++peer) {
      if (peer == rank()) continue;
      const Piece theirs = PieceOf(cuts, peer, begin);
      if (own.size > 0) {
        error =
            api_.Receive(communicator, Arriving(peer), bytes(own), peer, stream.native_handle());
      }
      if (theirs.size > 0 && error == kNcclSuccess) {
        error = api_.Send(communicator, data + theirs.begin, bytes(theirs), peer,
                          stream.native_handle());
      }
    }
    return error;
  }

  // Adds the pieces that have arrived to this rank's, in the order of RankAdditions. The last
  // addition, whose sum belongs to rank 0 there, writes into this rank's data.
  absl::Status Sum(Stream& stream, float* data, const Piece& own) {
    if (own.size == 0) return absl::OkStatus();
    const auto place = [&](int of) { return of == rank() ? data + own.begin : Arriving(of); };
    const std::vector<RankAddition> additions = RankAdditions(ranks());
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

  const std::unique_ptr<Communicator> bootstrap_;
  const std::unique_ptr<NcclSession> session_;  // uses the one before
  NcclApi& api_;
  Device& device_;
  float* const scratch_;  // [ranks - 1][piece_floats_]
  const int64_t piece_floats_;
  int64_t operations_ = 0;
  Traffic traffic_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> CreateNcclCommunicator(
    std::unique_ptr<Communicator> bootstrap, NcclApi* api, Device* device, void* scratch,
    int64_t scratch_bytes, const NcclPatience& patience) {
  if (const absl::Status status = CheckScratch(scratch_bytes, bootstrap.get()); !status.ok()) {
    bootstrap->Abort(status);
    return bootstrap->status();
  }
  MT_ASSIGN_OR_RETURN(std::unique_ptr<NcclSession> session,
                      NcclSession::Open(api, device, bootstrap.get(), patience));
  return std::make_unique<NcclCommunicator>(std::move(bootstrap), std::move(session), api, device,
                                            scratch, scratch_bytes);
}

int64_t NcclScratchBytes(int ranks) {
  return (ranks - 1) * std::max(kPieceBytesMin, PieceBytes(kScratchBytes, ranks));
}
int64_t NcclScratchBytesMin(int ranks) { return (ranks - 1) * kPieceBytesStep; }

}  // namespace megatrain
