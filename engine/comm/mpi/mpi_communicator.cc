#include "engine/comm/mpi/mpi_communicator.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/base/bytes.h"
#include "engine/base/status.h"
#include "engine/comm/collective_call.h"
#include "engine/comm/exchange.h"
#include "engine/comm/mpi/mpi_library.h"
#include "engine/comm/mpi/mpi_session.h"
#include "engine/comm/rank_grid.h"
#include "engine/comm/sum_ranks.h"

namespace megatrain {
namespace {

// A rank sends its call to every other before an operation, so that one who did not come, or calls
// something else, is known by its number.
constexpr int kCallTag = 0;
constexpr int kDataTag = 1;

// Parts are moved in pieces, of which a few are under way with each rank. A longer message would be
// announced first, and over TCP the receiver's answer waits behind all that it sends itself.
constexpr int64_t kPieceBytesMax = MEGATRAIN_MPI_EAGER_BYTES;
constexpr int64_t kPiecesAtOnce = 4;
constexpr int64_t kPiecesBytes = 32 * kMiB;  // under way, with all ranks

// 64-byte steps: a piece's sum is aligned as its part is.
int64_t PieceBytes(int ranks) {
  return std::clamp(kPiecesBytes / kPiecesAtOnce / ranks / 64 * 64, int64_t{4096}, kPieceBytesMax);
}

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<MpiSession> session, MegatrainMpiHandle communicator,
                  int group_ranks)
      : session_(std::move(session)),
        communicator_(communicator),
        rank_(session_->rank()),
        ranks_(session_->ranks()),
        grid_({.rank = rank_, .ranks = ranks_, .group_ranks = group_ranks}) {}

  ~MpiCommunicator() override { Keep(std::move(scratch_)); }

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  absl::Status AllGather(Stream&, void* data, absl::Span<const int64_t> cuts) override {
    MT_ASSIGN_OR_RETURN(CollectiveCall call, PartsCall(Operation::kAllGather, cuts, ranks_, 1));
    MT_RETURN_IF_ERROR(Begin(&call));
    return Gather(call, static_cast<char*>(data), cuts);
  }

  absl::Status ReduceScatter(Stream&, float* data, absl::Span<const int64_t> cuts) override {
    MT_ASSIGN_OR_RETURN(CollectiveCall call,
                        PartsCall(Operation::kReduceScatter, cuts, ranks_, sizeof(float)));
    MT_RETURN_IF_ERROR(Begin(&call));
    std::vector<int64_t> byte_cuts(cuts.begin(), cuts.end());
    for (int64_t& cut : byte_cuts) cut *= int64_t{sizeof(float)};
    const int64_t piece_bytes = PieceBytes(ranks_);
    scratch_.resize(static_cast<size_t>(MpiScratchBytes(ranks_)) / sizeof(float));
    char* const bytes = reinterpret_cast<char*>(data);
    const auto arriving = [&](int64_t step, int source) {
      return reinterpret_cast<char*>(scratch_.data()) +
             (step % kPiecesAtOnce * ranks_ + source) * piece_bytes;
    };
    const auto sum = [&](const RankGrid::Sum& values, int64_t step, int64_t piece) {
      const Piece own = PieceOf(byte_cuts, values.part, piece);
      std::vector<const float*> parts;
      for (const int source : values.sources) {
        parts.push_back(reinterpret_cast<const float*>(
            source == values.part ? bytes + own.begin : arriving(step, source)));
      }
      SumRanks(parts, own.bytes / int64_t{sizeof(float)},
               reinterpret_cast<float*>(bytes + own.begin));
    };
    const std::vector<RankGrid::Sum> inside = grid_.SumsInside();
    const RankGrid::Sum outside = grid_.SumOutside();
    return Exchange(
        call, byte_cuts, /*inside_first=*/true,
        [&](int64_t step, int64_t piece, int peer, const RankGrid::Share& share,
            std::vector<MpiTransfer>* transfers) -> absl::Status {
          const Piece own = PieceOf(byte_cuts, share.mine, piece),
                      theirs = PieceOf(byte_cuts, share.theirs, piece);
          MT_RETURN_IF_ERROR(Receive(arriving(step, share.theirs), own.bytes, peer, transfers));
          Count(theirs.bytes, peer, &traffic_.reduced_bytes);
          return Send(bytes + theirs.begin, theirs.bytes, peer, transfers);
        },
        [&](int64_t step) {
          for (const RankGrid::Sum& values : inside) sum(values, step, step);
          if (step >= Lag()) sum(outside, step, step - Lag());
        });
  }

  absl::StatusOr<std::vector<double>> GatherValues(absl::Span<const double> values) override {
    const int64_t bytes = static_cast<int64_t>(values.size() * sizeof(double));
    CollectiveCall call{.operation = Operation::kGatherValues, .bytes = bytes};
    MT_RETURN_IF_ERROR(Begin(&call));
    std::vector<double> all(values.size() * static_cast<size_t>(ranks_));
    std::copy(values.begin(), values.end(),
              all.begin() + static_cast<std::ptrdiff_t>(values.size()) * rank_);
    std::vector<int64_t> cuts;
    for (int rank = 0; rank <= ranks_; ++rank) cuts.push_back(rank * bytes);
    if (absl::Status status = Gather(call, reinterpret_cast<char*>(all.data()), cuts);
        !status.ok()) {
      Keep(std::move(all));
      return status;
    }
    return all;
  }

  absl::Status Broadcast(void* data, int64_t bytes, int root) override {
    CollectiveCall call{.operation = Operation::kBroadcast, .root = root, .bytes = bytes};
    MT_RETURN_IF_ERROR(Begin(&call));
    std::vector<int64_t> cuts(static_cast<size_t>(ranks_) + 1, 0);
    std::fill(cuts.begin() + root + 1, cuts.end(), bytes);
    return Gather(call, static_cast<char*>(data), cuts);
  }

  double ShareAllowance(double seconds) override { return session_->ShareAllowance(seconds); }
  std::string DescribeWaits() override { return session_->DescribeWaits(); }
  void TellOnce(absl::FunctionRef<void()> tell) override { session_->TellOnce(tell); }

  absl::Status Barrier() override {
    CollectiveCall call{.operation = Operation::kBarrier};
    return Begin(&call);
  }

  void Abort(const absl::Status& cause) override { session_->Abort(cause); }
  absl::Status status() override { return session_->status(); }
  Traffic traffic() const override { return traffic_; }

 private:
  // Bytes within the data of an operation.
  struct Piece {
    int64_t begin = 0, bytes = 0;
  };
  // Begins the transfers of a step that move a piece of a share with a peer.
  using BeginShare =
      absl::FunctionRef<absl::Status(int64_t step, int64_t piece, int peer, const RankGrid::Share&,
                                     std::vector<MpiTransfer>* transfers)>;

  static Piece PartOf(absl::Span<const int64_t> cuts, int rank) {
    const int64_t begin = cuts[static_cast<size_t>(rank)];
    return {begin, cuts[static_cast<size_t>(rank) + 1] - begin};
  }
  // A part's piece of this number. Empty after the part's end.
  Piece PieceOf(absl::Span<const int64_t> cuts, int rank, int64_t piece) const {
    const Piece part = PartOf(cuts, rank);
    const int64_t begin = std::min(part.bytes, piece * PieceBytes(ranks_));
    return {part.begin + begin, std::min(part.bytes - begin, PieceBytes(ranks_))};
  }

  // The steps by which a piece's second level comes after its first one, which is done by then.
  int64_t Lag() const { return grid_.two_levels() ? kPiecesAtOnce : 0; }

  void Count(int64_t bytes, int peer, int64_t* sent_bytes) {
    *sent_bytes += bytes;
    if (!grid_.IsInside(peer)) traffic_.outside_bytes += bytes;
  }
  absl::Status Send(const void* data, int64_t bytes, int peer,
                    std::vector<MpiTransfer>* transfers) {
    if (bytes == 0) return absl::OkStatus();
    return session_->Send(communicator_, data, bytes, peer, kDataTag, transfers);
  }
  absl::Status Receive(void* data, int64_t bytes, int peer, std::vector<MpiTransfer>* transfers) {
    if (bytes == 0) return absl::OkStatus();
    return session_->Receive(communicator_, data, bytes, peer, kDataTag, transfers);
  }

  // Numbers the operation, and waits until every rank has begun the same one.
  absl::Status Begin(CollectiveCall* call) {
    MT_RETURN_IF_ERROR(session_->status());
    call->number = operations_++;
    std::vector<CollectiveCall> calls(static_cast<size_t>(ranks_));
    std::vector<MpiTransfer> transfers;
    absl::Status status;
    for (int peer = 0; peer < ranks_ && status.ok(); ++peer) {
      if (peer == rank_) continue;
      status = session_->Receive(communicator_, &calls[static_cast<size_t>(peer)],
                                 sizeof(CollectiveCall), peer, kCallTag, &transfers);
      if (!status.ok()) break;
      status =
          session_->Send(communicator_, call, sizeof(CollectiveCall), peer, kCallTag, &transfers);
    }
    if (status.ok()) status = session_->Wait(*call, &transfers);
    for (int peer = 0; peer < ranks_ && status.ok(); ++peer) {
      if (peer == rank_) continue;
      status = CheckSameCall(rank_, *call, peer, calls[static_cast<size_t>(peer)]);
    }
    if (status.ok()) return status;
    status = Fail(*call, status, absl::MakeSpan(&transfers, 1));
    Keep(std::move(calls));
    return status;
  }

  // Keeps memory of an operation that has failed, if MPI may still write there. The process ends
  // soon.
  template <typename T>
  void Keep(std::vector<T> memory) {
    if (session_->gave_up_transfers()) (void)new std::vector<T>(std::move(memory));
  }

  // Sends this rank's part to all others, and receives theirs.
  absl::Status Gather(const CollectiveCall& call, char* data, absl::Span<const int64_t> cuts) {
    return Exchange(
        call, cuts, /*inside_first=*/false,
        [&](int64_t, int64_t piece, int peer, const RankGrid::Share& share,
            std::vector<MpiTransfer>* transfers) -> absl::Status {
          const Piece own = PieceOf(cuts, share.mine, piece),
                      theirs = PieceOf(cuts, share.theirs, piece);
          MT_RETURN_IF_ERROR(Receive(data + theirs.begin, theirs.bytes, peer, transfers));
          if (call.operation != Operation::kGatherValues) {
            Count(own.bytes, peer, &traffic_.gathered_bytes);
          }
          return Send(data + own.begin, own.bytes, peer, transfers);
        },
        [](int64_t) {});
  }

  // Moves all pieces, step by step: of the level that comes first the piece of the step's number,
  // and of the other one that piece whose first level ended before the step began. `finish` is
  // called for each step when its transfers are done, in the order of steps.
  absl::Status Exchange(const CollectiveCall& call, absl::Span<const int64_t> cuts,
                        bool inside_first, BeginShare begin,
                        absl::FunctionRef<void(int64_t step)> finish) {
    int64_t longest = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      longest = std::max(longest, PartOf(cuts, rank).bytes);
    }
    const int64_t steps = (longest + PieceBytes(ranks_) - 1) / PieceBytes(ranks_) + Lag();
    std::vector<std::vector<MpiTransfer>> transfers(static_cast<size_t>(kPiecesAtOnce));
    const auto begin_step = [&](int64_t step) -> absl::Status {
      // Each rank begins with another peer, so that not all send to the same one.
      for (int k = 1; k < ranks_ && step < steps; ++k) {
        const int peer = (rank_ + k) % ranks_;
        const int64_t piece = grid_.IsInside(peer) == inside_first ? step : step - Lag();
        if (piece < 0) continue;
        for (const RankGrid::Share& share : grid_.SharesWith(peer)) {
          MT_RETURN_IF_ERROR(begin(step, piece, peer, share,
                                   &transfers[static_cast<size_t>(step % kPiecesAtOnce)]));
        }
      }
      return absl::OkStatus();
    };
    absl::Status status;
    for (int64_t step = 0; step < kPiecesAtOnce && status.ok(); ++step) status = begin_step(step);
    for (int64_t step = 0; step < steps && status.ok(); ++step) {
      status = session_->Wait(call, &transfers[static_cast<size_t>(step % kPiecesAtOnce)]);
      if (!status.ok()) break;
      finish(step);
      status = begin_step(step + kPiecesAtOnce);
    }
    return status.ok() ? status : Fail(call, status, absl::MakeSpan(transfers));
  }

  // Ends the operation for all ranks. Returns the first cause.
  absl::Status Fail(const CollectiveCall& call, const absl::Status& status,
                    absl::Span<std::vector<MpiTransfer>> transfers) {
    session_->Abort(status);
    // Ends them, as there is a cause. One list: a wait for each would add up.
    std::vector<MpiTransfer> all;
    for (std::vector<MpiTransfer>& list : transfers) {
      all.insert(all.end(), list.begin(), list.end());
      list.clear();
    }
    (void)session_->Wait(call, &all);
    return session_->status();
  }

  const std::shared_ptr<MpiSession> session_;
  const MegatrainMpiHandle communicator_;
  const int rank_;
  const int ranks_;
  const RankGrid grid_;
  std::vector<float> scratch_;  // [pieces at once][sources][piece], if there was a ReduceScatter
  int64_t operations_ = 0;
  Traffic traffic_;
};

}  // namespace

absl::StatusOr<CommunicatorSet> CreateMpiCommunicators(const MpiOptions& options) {
  MT_ASSIGN_OR_RETURN(const std::shared_ptr<MpiSession> session,
                      MpiSession::Open(options.library.empty() ? MpiLibraryPath() : options.library,
                                       options.deadline));
  CommunicatorSet set;
  MT_ASSIGN_OR_RETURN(const MegatrainMpiHandle first, session->CreateCommunicator());
  {
    MpiCommunicator one_level(session, first, /*group_ranks=*/1);
    MT_RETURN_IF_ERROR(
        ExchangeBytes(&one_level, options.machine,
                      [&](int, absl::string_view machine) { set.machines.emplace_back(machine); }));
    set.group_ranks = GroupRanks(set.machines);
  }
  set.tiles = std::make_unique<MpiCommunicator>(session, first, set.group_ranks);
  for (std::unique_ptr<Communicator>* const communicator :
       {&set.values, &set.control, &set.saves}) {
    MT_ASSIGN_OR_RETURN(const MegatrainMpiHandle handle, session->CreateCommunicator());
    *communicator = std::make_unique<MpiCommunicator>(session, handle, set.group_ranks);
  }
  return set;
}

int64_t MpiScratchBytes(int ranks) { return kPiecesAtOnce * ranks * PieceBytes(ranks); }

}  // namespace megatrain
