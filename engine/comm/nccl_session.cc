#include "engine/comm/nccl_session.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/base/thread_name.h"

namespace megatrain {
namespace {

constexpr double kLookSeconds = 0.005;
constexpr double kSettleSeconds = 0.0002;

// Doubles that hold 4 bytes of text each.
constexpr size_t kUuidValues = 16;

std::vector<double> ValuesOf(std::string text) {
  text.resize(kUuidValues * sizeof(uint32_t), '\0');
  std::vector<double> values;
  for (size_t i = 0; i < kUuidValues; ++i) {
    uint32_t word = 0;
    std::memcpy(&word, text.data() + i * sizeof(word), sizeof(word));
    values.push_back(word);
  }
  return values;
}

// NCCL itself refuses two ranks on a GPU with an error that does not say so, or hangs.
absl::Status CheckGpus(const Device& device, Communicator* bootstrap) {
  const std::vector<double> own = ValuesOf(device.Uuid());
  MT_ASSIGN_OR_RETURN(const std::vector<double> all, bootstrap->GatherValues(own));
  const auto uuid = [&](int rank) { return all.begin() + rank * std::ptrdiff_t{kUuidValues}; };
  for (int rank = 1; rank < bootstrap->ranks(); ++rank) {
    for (int other = 0; other < rank; ++other) {
      if (*uuid(rank) == 0 || !std::equal(uuid(rank), uuid(rank + 1), uuid(other))) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "ranks ", other, " and ", rank, " have the same GPU",
          rank == bootstrap->rank() ? absl::StrCat(" (", device.Uuid(), ")") : "",
          "; give each rank its own, as with device: cuda:N or srun --gpus-per-task=1"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclSession>> NcclSession::Open(NcclApi* api, Device* device,
                                                               Communicator* bootstrap,
                                                               const NcclPatience& patience) {
  std::unique_ptr<NcclSession> session(new NcclSession(api, device, bootstrap, patience));
  absl::Status status = CheckGpus(*device, bootstrap);
  if (status.ok()) status = session->Initialize();
  if (!status.ok()) {
    MutexLock lock(&session->mutex_);
    return session->End(status);
  }
  session->thread_ = std::thread([raw = session.get()] { raw->Watch(); });
  return session;
}

absl::Status NcclSession::Initialize() {
  NcclId id;
  if (bootstrap_.rank() == 0) {
    MT_RETURN_IF_ERROR(Error(api_.MakeId(&id), "making an id"));
  }
  MT_RETURN_IF_ERROR(bootstrap_.Broadcast(&id, sizeof(id), 0));
  // Making an event chooses the device for this thread.
  MT_ASSIGN_OR_RETURN(std::unique_ptr<Event> event, device_.CreateEvent());
  MutexLock lock(&mutex_);
  events_.push_back(std::move(event));
  const int error = api_.Initialize(id, bootstrap_.rank(), bootstrap_.ranks(), &communicator_);
  return Settle(error, "making a communicator", patience_.meeting);
}

NcclSession::~NcclSession() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  MutexLock lock(&mutex_);
  if (communicator_ == nullptr) return;
  absl::Status status = bootstrap_.status();
  if (status.ok()) {
    status = Settle(api_.Finalize(communicator_), "ending the communicator", patience_.meeting);
  }
  if (!status.ok()) {
    (void)End(status);
  } else {
    (void)api_.Destroy(communicator_);  // nothing depends on it any more
  }
}

absl::Status NcclSession::Group(Stream& stream, const CollectiveCall& call,
                                absl::FunctionRef<int(void*)> queue) {
  MutexLock lock(&mutex_);
  MT_RETURN_IF_ERROR(bootstrap_.status());
  Watched watched;
  watched.call = call;
  const absl::Status status = Queue(stream, queue, &watched);
  if (!status.ok()) return End(status);
  watched_.push_back(std::move(watched));
  changed_.NotifyAll();
  return absl::OkStatus();
}

absl::Status NcclSession::Queue(Stream& stream, absl::FunctionRef<int(void*)> queue,
                                Watched* watched) {
  for (std::unique_ptr<Event>* const event : {&watched->start, &watched->end}) {
    if (events_.empty()) {
      MT_ASSIGN_OR_RETURN(*event, device_.CreateEvent());
    } else {
      *event = std::move(events_.back());
      events_.pop_back();
    }
  }
  MT_RETURN_IF_ERROR(device_.Record(stream, *watched->start));
  MT_RETURN_IF_ERROR(Error(api_.GroupStart(), "beginning a group"));
  const int error = queue(communicator_);
  const int end_error = api_.GroupEnd();  // also after an error, which it would be in otherwise
  MT_RETURN_IF_ERROR(Error(error, "queueing an operation"));
  MT_RETURN_IF_ERROR(Settle(end_error, "queueing operations", patience_.operation));
  return device_.Record(stream, *watched->end);
}

absl::Status NcclSession::Settle(int error, const char* what, absl::Duration patience) {
  const Clock::time_point start = Clock::now();
  while (error == kNcclInProgress) {
    MT_RETURN_IF_ERROR(bootstrap_.status());
    if (Clock::now() - start > absl::ToChronoNanoseconds(patience)) {
      return absl::DeadlineExceededError(
          absl::StrCat("rank ", bootstrap_.rank(), " waited ", absl::FormatDuration(patience),
                       " for other ranks in NCCL, ", what, "; see the logs of all ranks"));
    }
    changed_.WaitFor(&mutex_, kSettleSeconds);
    if (communicator_ == nullptr) return bootstrap_.status();
    MT_RETURN_IF_ERROR(Error(api_.AsyncError(communicator_, &error), what));
  }
  return Error(error, what);
}

void NcclSession::Watch() {
  NameThisThread("nccl watch");
  MutexLock lock(&mutex_);
  while (!stopping_) {
    if (watched_.empty()) {
      changed_.Wait(&mutex_);
      continue;
    }
    if (const absl::Status status = Look(); !status.ok()) {
      (void)End(status);
      watched_.clear();
    }
    if (!watched_.empty()) changed_.WaitFor(&mutex_, kLookSeconds);
  }
}

absl::Status NcclSession::Look() {
  const Clock::time_point now = Clock::now();
  while (!watched_.empty()) {
    Watched& first = watched_.front();
    if (!first.started.has_value()) {
      MT_ASSIGN_OR_RETURN(const bool reached, device_.Done(*first.start));
      if (!reached) break;
      first.started = now;
    }
    MT_ASSIGN_OR_RETURN(const bool done, device_.Done(*first.end));
    if (!done) break;
    events_.push_back(std::move(first.start));
    events_.push_back(std::move(first.end));
    watched_.pop_front();
  }
  MT_RETURN_IF_ERROR(bootstrap_.status());
  int error = kNcclSuccess;
  MT_RETURN_IF_ERROR(Error(api_.AsyncError(communicator_, &error), "asking for errors"));
  if (error != kNcclInProgress) MT_RETURN_IF_ERROR(Error(error, "an operation"));
  if (watched_.empty()) return absl::OkStatus();
  const Watched& first = watched_.front();
  if (!first.started.has_value() ||
      now - *first.started <= absl::ToChronoNanoseconds(patience_.operation)) {
    return absl::OkStatus();
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "rank ", bootstrap_.rank(), " waited ", absl::FormatDuration(patience_.operation),
      " for other ranks in ", first.call.Describe(),
      " on the GPU; NCCL does not tell which ones; see the logs of all ranks"));
}

absl::Status NcclSession::End(const absl::Status& cause) {
  bootstrap_.Abort(cause);
  if (communicator_ != nullptr) (void)api_.Abort(communicator_);  // there is a cause already
  communicator_ = nullptr;
  return bootstrap_.status();
}

absl::Status NcclSession::Error(int error, const char* what) const {
  if (error == kNcclSuccess) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("rank ", bootstrap_.rank(), ": ", what, ": ", api_.Describe(error)));
}

}  // namespace megatrain
