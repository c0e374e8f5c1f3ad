#include "engine/comm/exchange.h"

#include <cstdint>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "engine/base/file.h"
#include "engine/base/status.h"
#include "engine/comm/launch_environment.h"

namespace megatrain {
namespace {
constexpr char kFoundByAll[] = "megatrain/found-by-all";
}  // namespace

absl::Status ExchangeBytes(Communicator* communicator, absl::string_view own,
                           absl::FunctionRef<void(int rank, absl::string_view bytes)> visit) {
  if (communicator == nullptr) {
    visit(0, own);
    return absl::OkStatus();
  }
  // A double holds the size exactly: it is below 2^53.
  MT_ASSIGN_OR_RETURN(const std::vector<double> sizes,
                      communicator->GatherValues({static_cast<double>(own.size())}));
  for (int rank = 0; rank < communicator->ranks(); ++rank) {
    std::string bytes(static_cast<size_t>(sizes[static_cast<size_t>(rank)]), '\0');
    if (rank == communicator->rank()) bytes = std::string(own);
    if (!bytes.empty()) {
      MT_RETURN_IF_ERROR(
          communicator->Broadcast(bytes.data(), static_cast<int64_t>(bytes.size()), rank));
    }
    visit(rank, bytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> FromFirstRank(Communicator* communicator, absl::string_view own) {
  std::string first;
  MT_RETURN_IF_ERROR(ExchangeBytes(communicator, own, [&](int rank, absl::string_view bytes) {
    if (rank == 0) first = std::string(bytes);
  }));
  return first;
}

absl::Status Agree(Communicator* communicator, const absl::Status& own) {
  if (communicator == nullptr) return own;
  // The code as a character, the mark of a full disk, the end of the message; nothing for OK.
  std::string text;
  if (!own.ok()) {
    text = absl::StrCat(std::string(1, static_cast<char>(own.code())), IsDiskFull(own) ? "f" : "-",
                        " on ", HostName(), ": ", own.message());
  }
  absl::Status agreed;
  MT_RETURN_IF_ERROR(ExchangeBytes(communicator, text, [&](int rank, absl::string_view bytes) {
    if (bytes.empty() || !agreed.ok()) return;
    const std::string message = absl::StrCat("rank ", rank, bytes.substr(2));
    agreed = FoundByAll(bytes[1] == 'f'
                            ? DiskFullError(message)
                            : absl::Status(static_cast<absl::StatusCode>(bytes[0]), message));
  }));
  return agreed;
}

absl::Status FoundByAll(absl::Status error) {
  error.SetPayload(kFoundByAll, absl::Cord());
  return error;
}

absl::Status AbortAll(Communicator* communicator, const absl::Status& own) {
  if (communicator == nullptr) return own;
  communicator->Abort(
      own.GetPayload(kFoundByAll).has_value()
          ? own
          : absl::Status(own.code(), absl::StrCat("rank ", communicator->rank(), " on ", HostName(),
                                                  ": ", own.message())));
  return communicator->status();
}

}  // namespace megatrain
