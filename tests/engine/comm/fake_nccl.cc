#include "tests/engine/comm/fake_nccl.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/engine/device/cuda/emulation.h"

namespace megatrain {
namespace {

void Must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fake nccl: %s\n", what);
  std::abort();
}

}  // namespace

FakeNccl::~FakeNccl() { Must(state_ == nullptr, "a communicator was not destroyed"); }

void FakeNccl::Fail(const std::string& method, int error, int after) {
  std::lock_guard<std::mutex> lock(mutex_);
  failures_[method] = {after, error};
}

std::vector<std::string> FakeNccl::calls() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return calls_;
}

int FakeNccl::Called(const std::string& method, const std::string& arguments) {
  if (method != "AsyncError" && method != "Operation") calls_.push_back(method + arguments);
  const auto found = failures_.find(method);
  if (found == failures_.end()) return kNcclSuccess;
  auto& [after, error] = found->second;
  if (after > 0) {
    --after;
    return kNcclSuccess;
  }
  return error;
}

int FakeNccl::MakeId(NcclId* id) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::memset(id->bytes, 7, sizeof(id->bytes));
  FakeNcclNetwork* const network = network_.get();
  std::memcpy(id->bytes, &network, sizeof(network));
  return Called("MakeId");
}

int FakeNccl::Initialize(const NcclId& id, int rank, int ranks, void** communicator) {
  std::lock_guard<std::mutex> lock(mutex_);
  Must(id.bytes[sizeof(void*)] == 7 && id.bytes[127] == 7, "another id than rank 0 has made");
  if (const int error = Called("Initialize"); error != 0) return error;
  // Rank 0, which waits for the others, keeps it until they are here.
  FakeNcclNetwork* network = nullptr;
  std::memcpy(&network, id.bytes, sizeof(network));
  network_ = network->shared_from_this();
  state_ = std::make_shared<State>();
  state_->rank = rank;
  state_->ranks = ranks;
  *communicator = state_.get();
  std::lock_guard<std::mutex> network_lock(network_->mutex);
  ++network_->initialized;
  return kNcclInProgress;
}

int FakeNccl::AsyncError(void* communicator, int* error) {
  std::lock_guard<std::mutex> lock(mutex_);
  Must(communicator == state_.get(), "a communicator that is no more");
  if (const int failed = Called("AsyncError"); failed != 0) return failed;
  std::lock_guard<std::mutex> network_lock(network_->mutex);
  *error = kNcclSuccess;
  if (in_progress_ > 0) {
    --in_progress_;
    *error = kNcclInProgress;
  } else if (network_->initialized < state_->ranks) {
    *error = kNcclInProgress;
  } else if (finalizing_ && (state_->under_way > 0 || network_->finalized < state_->ranks)) {
    *error = kNcclInProgress;
  }
  if (state_->under_way > 0) {
    if (const int failed = Called("Operation"); failed != 0) *error = failed;
  }
  return kNcclSuccess;
}

int FakeNccl::GroupStart() {
  std::lock_guard<std::mutex> lock(mutex_);
  Must(!in_group_, "a group within a group");
  if (const int error = Called("GroupStart"); error != 0) return error;
  in_group_ = true;
  return kNcclSuccess;
}

int FakeNccl::GroupEnd() {
  std::lock_guard<std::mutex> lock(mutex_);
  Must(in_group_, "the end of no group");
  in_group_ = false;
  std::vector<Transfer> transfers;
  std::swap(transfers, group_);
  if (const int error = Called("GroupEnd"); error != 0) return error;
  if (transfers.empty()) return kNcclSuccess;
  {
    std::lock_guard<std::mutex> network_lock(network_->mutex);
    ++state_->under_way;
  }
  static_cast<cuda::EmulatedStream*>(group_stream_)
      ->Enqueue([network = network_, state = state_, transfers = std::move(transfers)] {
        Run(network.get(), state.get(), transfers);
      });
  in_progress_ = 2;
  return kNcclInProgress;
}

void FakeNccl::Run(FakeNcclNetwork* network, State* state, const std::vector<Transfer>& transfers) {
  using Message = FakeNcclNetwork::Message;
  std::unique_lock<std::mutex> lock(network->mutex);
  if (state->aborted) {
    --state->under_way;
    return;
  }
  std::vector<std::shared_ptr<Message>> sent;
  for (const Transfer& transfer : transfers) {
    if (!transfer.sends) continue;
    sent.push_back(std::make_shared<Message>(Message{transfer.data, transfer.bytes}));
    network->messages[{state->rank, transfer.peer}].push_back(sent.back());
  }
  network->changed.notify_all();
  for (const Transfer& transfer : transfers) {
    if (transfer.sends) continue;
    auto& messages = network->messages[{transfer.peer, state->rank}];
    network->changed.wait(lock, [&] { return !messages.empty() || state->aborted; });
    if (state->aborted) break;
    const std::shared_ptr<Message> message = messages.front();
    messages.pop_front();
    Must(message->bytes == transfer.bytes, "sizes that differ");
    std::memcpy(transfer.data, message->data, static_cast<size_t>(transfer.bytes));
    message->taken = true;
    network->changed.notify_all();
  }
  for (const std::shared_ptr<Message>& message : sent) {
    network->changed.wait(lock, [&] { return message->taken || state->aborted; });
  }
  --state->under_way;
}

void FakeNccl::Add(const Transfer& transfer, void* stream) {
  Must(in_group_, "an operation outside of a group");
  Must(transfer.bytes > 0, "nothing to send");
  group_.push_back(transfer);
  group_stream_ = stream;
}

int FakeNccl::Send(void* communicator, const void* data, int64_t bytes, int peer, void* stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  Must(communicator == state_.get(), "a communicator that is no more");
  Add({true, peer, static_cast<char*>(const_cast<void*>(data)), bytes}, stream);
  {
    std::lock_guard<std::mutex> network_lock(network_->mutex);
    network_->sends.insert({state_->rank, peer});
  }
  return Called("Send", absl::StrCat(" ", bytes, " to ", peer));
}

int FakeNccl::Receive(void* communicator, void* data, int64_t bytes, int peer, void* stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  Must(communicator == state_.get(), "a communicator that is no more");
  Add({false, peer, static_cast<char*>(data), bytes}, stream);
  return Called("Receive", absl::StrCat(" ", bytes, " from ", peer));
}

int FakeNccl::Broadcast(void* communicator, void* data, int64_t bytes, int root, void* stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  Must(communicator == state_.get(), "a communicator that is no more");
  for (int peer = 0; peer < state_->ranks; ++peer) {
    if (peer == state_->rank || (root != state_->rank && root != peer)) continue;
    Add({root == state_->rank, peer, static_cast<char*>(data), bytes}, stream);
  }
  return Called("Broadcast", absl::StrCat(" ", bytes, " from ", root));
}

int FakeNccl::AllGather(void* communicator, const void* own, void* all, int64_t part_bytes,
                        void* stream) {
  std::lock_guard<std::mutex> lock(mutex_);
  Must(communicator == state_.get(), "a communicator that is no more");
  char* const parts = static_cast<char*>(all);
  Must(own == parts + state_->rank * part_bytes, "a part that is not in its place");
  for (int peer = 0; peer < state_->ranks; ++peer) {
    if (peer == state_->rank) continue;
    Add({true, peer, parts + state_->rank * part_bytes, part_bytes}, stream);
    Add({false, peer, parts + peer * part_bytes, part_bytes}, stream);
  }
  return Called("AllGather", absl::StrCat(" ", part_bytes));
}

int FakeNccl::Finalize(void* communicator) {
  std::lock_guard<std::mutex> lock(mutex_);
  Must(communicator == state_.get(), "a communicator that is no more");
  if (const int error = Called("Finalize"); error != 0) return error;
  finalizing_ = true;
  std::lock_guard<std::mutex> network_lock(network_->mutex);
  ++network_->finalized;
  return kNcclInProgress;
}

int FakeNccl::Destroy(void* communicator) {
  std::lock_guard<std::mutex> lock(mutex_);
  Must(communicator == state_.get() && finalizing_, "a communicator that was not finalized");
  const int error = Called("Destroy");
  state_ = nullptr;
  return error;
}

int FakeNccl::Abort(void* communicator) {
  std::lock_guard<std::mutex> lock(mutex_);
  Must(communicator == state_.get(), "a communicator that is no more");
  const int error = Called("Abort");
  {
    std::lock_guard<std::mutex> network_lock(network_->mutex);
    state_->aborted = true;
  }
  network_->changed.notify_all();
  state_ = nullptr;
  return error;
}

}  // namespace megatrain
