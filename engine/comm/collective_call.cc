#include "engine/comm/collective_call.h"

#include <xxhash.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"

namespace megatrain {
namespace {

const char* Name(Operation operation) {
  switch (operation) {
    case Operation::kAllGather:
      return "AllGather";
    case Operation::kReduceScatter:
      return "ReduceScatter";
    case Operation::kGatherValues:
      return "GatherValues";
    case Operation::kBroadcast:
      return "Broadcast";
    case Operation::kBarrier:
      return "Barrier";
  }
  return "an unknown operation";
}

}  // namespace

std::string CollectiveCall::Describe() const {
  std::string text = Name(operation);
  if (operation != Operation::kBarrier) absl::StrAppend(&text, " of ", FormatBytesShort(bytes));
  if (operation == Operation::kBroadcast) absl::StrAppend(&text, " from rank ", root);
  return absl::StrCat(text, " (operation ", number, ")");
}

absl::StatusOr<CollectiveCall> PartsCall(Operation operation, absl::Span<const int64_t> cuts,
                                         int ranks, int64_t element_bytes) {
  if (cuts.size() != static_cast<size_t>(ranks) + 1 || cuts.front() < 0 ||
      !std::is_sorted(cuts.begin(), cuts.end())) {
    return absl::InvalidArgumentError(
        absl::StrCat("the cuts of ", Name(operation), " must be ", ranks + 1,
                     " ascending numbers, none negative: ", absl::StrJoin(cuts, ", ")));
  }
  return CollectiveCall{.operation = operation,
                        .bytes = (cuts.back() - cuts.front()) * element_bytes,
                        .cuts = XXH3_64bits(cuts.data(), cuts.size() * sizeof(int64_t))};
}

absl::Status CheckSameCall(int rank, const CollectiveCall& call, int other_rank,
                           const CollectiveCall& other) {
  if (call == other) return absl::OkStatus();
  const bool parts = call.operation == other.operation && call.bytes == other.bytes;
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", rank, " calls ", call.Describe(), ", but rank ", other_rank, " calls ",
                   other.Describe(), parts ? " with other parts" : "",
                   "; all ranks must run the same program on the same job"));
}

std::string RankList(const std::vector<int>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

absl::Status MissingRanksError(int rank, const CollectiveCall& call,
                               const std::vector<int>& missing, absl::Duration deadline) {
  return absl::DeadlineExceededError(absl::StrCat(
      "rank ", rank, " waited ", absl::FormatDuration(deadline), " for ", RankList(missing), " in ",
      call.Describe(), "; see ", missing.size() == 1 ? "its log" : "their logs"));
}

absl::Status SilentRanksError(int rank, const std::vector<int>& missing, absl::Duration deadline) {
  return absl::DeadlineExceededError(absl::StrCat(
      "rank ", rank, " heard nothing of ", RankList(missing), " for ",
      absl::FormatDuration(deadline), "; see ", missing.size() == 1 ? "its log" : "their logs"));
}

absl::Status RankLeftError(int rank, const CollectiveCall& call) {
  return absl::UnavailableError(absl::StrCat("rank ", rank, " ended without ", call.Describe(),
                                             "; see the log of that rank"));
}

absl::Status LostRankError(int rank, int lost, const absl::Status& error) {
  return absl::Status(error.code(),
                      absl::StrCat("rank ", rank, " has lost rank ", lost, ": ", error.message()));
}

}  // namespace megatrain
