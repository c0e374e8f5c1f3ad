#include "server/launch/meeting.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/status.h"
#include "engine/comm/collective_call.h"

namespace megatrain {
namespace {

namespace v1 = launch::v1;

// A process tells of itself in a few hundred bytes.
constexpr int kMessageBytesMax = 64 << 20;
constexpr int kReconnectMilliseconds = 500;
// A machine that has lost its network is noticed by the processes of the job themselves.
constexpr std::chrono::seconds kLastReplies{2};
// How often a call that waits looks whether its caller is still there.
constexpr double kLookSeconds = 0.2;
// A machine that is not taken yet asks again after this.
constexpr absl::Duration kAskAgain = absl::Milliseconds(500);
// The reply with what is missing comes after the patience has ended.
constexpr absl::Duration kReplyTime = absl::Seconds(5);

std::string WithPort(absl::string_view address, int port) {
  const bool is_v6 = absl::StrContains(address, ':') && !absl::StartsWith(address, "[");
  return is_v6 ? absl::StrCat("[", address, "]:", port) : absl::StrCat(address, ":", port);
}

grpc::Status Mismatch(const std::string& what) {
  return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, what);
}

std::string RanksOf(const v1::MachineData& machine) {
  const int64_t first = machine.first_rank(), last = first + machine.ranks() - 1;
  return last > first ? absl::StrCat("ranks ", first, " to ", last) : absl::StrCat("rank ", first);
}

using Clock = std::chrono::steady_clock;

}  // namespace

// The calls of all machines wait here for each other.
class Meeting::Table final : public v1::Meeting::Service {
 public:
  explicit Table(const MeetingPlace& place) : place_(place) {}

  grpc::Status Exchange(grpc::ServerContext* context, const v1::ExchangeRequest* request,
                        v1::ExchangeReply* reply) override {
    MutexLock lock(&mutex_);
    if (const grpc::Status admitted = Admit(*request); !admitted.ok()) return admitted;
    if (!failed_.ok()) return failed_;
    const v1::MachineData& own = request->own();
    if (request->leaves()) return Fail(Ended(own));
    std::map<int, v1::MachineData>& round = rounds_[request->round()];
    round[own.first_rank()] = own;
    const Clock::time_point begin = Clock::now();
    while (failed_.ok() && RanksIn(round) < place_.ranks) {
      if (context->IsCancelled()) return Fail(Ended(own));
      if (request->patience_seconds() > 0 &&
          std::chrono::duration<double>(Clock::now() - begin).count() >=
              request->patience_seconds()) {
        return Fail(Unmet(round));
      }
      changed_.WaitFor(&mutex_, kLookSeconds);
    }
    if (!failed_.ok()) return failed_;
    if (request->round() == 0 && members_.empty()) {
      for (const auto& [rank, machine] : round) members_[rank] = machine.ranks();
    }
    changed_.NotifyAll();
    for (const auto& [rank, machine] : round) *reply->add_machines() = machine;
    if (++replies_[request->round()] == static_cast<int>(round.size())) {
      rounds_.erase(request->round());
      replies_.erase(request->round());
    }
    return grpc::Status::OK;
  }

 private:
  // Returns an error for a caller that may not take part. An error of one that should ends all.
  grpc::Status Admit(const v1::ExchangeRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const v1::MachineData& own = request.own();
    if (request.job() != place_.job) {
      return Mismatch(absl::StrCat("the job that meets at port ", place_.port, " is \"", place_.job,
                                   "\", and not \"", request.job(),
                                   "\"; give each job a MASTER_PORT of its own"));
    }
    if (!members_.empty() || request.round() != 0) {
      const auto member = members_.find(own.first_rank());
      const bool goes_on =
          member != members_.end() && member->second == own.ranks() && request.round() > 0;
      // It may be of a later attempt than this one.
      return goes_on ? grpc::Status::OK
                     : grpc::Status(grpc::StatusCode::UNAVAILABLE,
                                    "the job that meets there has begun without this machine");
    }
    const int64_t end = int64_t{own.first_rank()} + own.ranks();
    if (own.first_rank() < 0 || own.ranks() < 1 || end > place_.ranks ||
        request.ranks() != place_.ranks) {
      return Fail(
          Mismatch(absl::StrCat("a machine has ", RanksOf(own), " of ", request.ranks(),
                                " and the first machine is of a job with ", place_.ranks,
                                " ranks; start torchrun with the same --nnodes everywhere")));
    }
    for (const auto& [rank, machine] : rounds_[0]) {
      if (rank < end && own.first_rank() < rank + machine.ranks()) {
        return Fail(
            Mismatch(absl::StrCat("two machines have the same ranks, ", RanksOf(machine), " and ",
                                  RanksOf(own), "; give each another --node-rank")));
      }
    }
    return grpc::Status::OK;
  }

  static grpc::Status Ended(const v1::MachineData& machine) {
    return grpc::Status(
        grpc::StatusCode::ABORTED,
        absl::StrCat("the launcher of ", RanksOf(machine), " has ended; see what it says there"));
  }

  static int RanksIn(const std::map<int, v1::MachineData>& round) {
    int ranks = 0;
    for (const auto& [rank, machine] : round) ranks += machine.ranks();
    return ranks;
  }

  grpc::Status Unmet(const std::map<int, v1::MachineData>& round) const {
    std::vector<int> missing;
    int next = 0;
    for (const auto& [rank, machine] : round) {
      for (; next < rank; ++next) missing.push_back(next);
      next = rank + machine.ranks();
    }
    for (; next < place_.ranks; ++next) missing.push_back(next);
    return grpc::Status(
        grpc::StatusCode::OUT_OF_RANGE,
        absl::StrCat("the launcher of ", RankList(missing), " has not come to ",
                     WithPort(place_.address, place_.port),
                     " in time (three times --rank-timeout); is torchrun started on all machines, "
                     "and does a firewall let them through?"));
  }

  // Lets all calls fail, now and later.
  grpc::Status Fail(const grpc::Status& cause) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (failed_.ok()) failed_ = cause;
    changed_.NotifyAll();
    return failed_;
  }

  const MeetingPlace place_;
  Mutex mutex_;
  CondVar changed_;
  // The rounds that have not ended: what the machines gave, by their first ranks, and how many have
  // their reply.
  std::map<int64_t, std::map<int, v1::MachineData>> rounds_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, int> replies_ ABSL_GUARDED_BY(mutex_);
  // The machines of the job, once they have met: how many ranks, by their first ones.
  std::map<int, int> members_ ABSL_GUARDED_BY(mutex_);
  grpc::Status failed_ ABSL_GUARDED_BY(mutex_);
};

Meeting::Meeting(const MeetingPlace& place) : place_(place) {}

absl::StatusOr<std::unique_ptr<Meeting>> Meeting::Open(const MeetingPlace& place) {
  // What goes wrong is told by this program, and not by gRPC's log too.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  std::unique_ptr<Meeting> meeting(new Meeting(place));
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectMilliseconds);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kReconnectMilliseconds);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMilliseconds);
  // Machines of a job reach each other directly, whatever http_proxy says.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (place.first_rank > 0) {
    meeting->stub_ = v1::Meeting::NewStub(
        grpc::CreateCustomChannel(absl::StrCat("dns:///", WithPort(place.address, place.port)),
                                  grpc::InsecureChannelCredentials(), arguments));
    return meeting;
  }
  const bool loopback = absl::StartsWith(place.address, "127.") || place.address == "::1";
  const std::string listen = WithPort(loopback ? place.address : "::", place.port);
  meeting->table_ = std::make_unique<Table>(place);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials());
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  builder.RegisterService(meeting->table_.get());
  meeting->server_ = builder.BuildAndStart();
  if (meeting->server_ == nullptr) {
    return absl::UnavailableError(absl::StrCat(
        "the machines of the job cannot meet at ", listen,
        ": the port is in use, or may not be used; start torchrun with another --master-port"));
  }
  meeting->stub_ = v1::Meeting::NewStub(meeting->server_->InProcessChannel(arguments));
  return meeting;
}

Meeting::~Meeting() {
  Leave();
  if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + kLastReplies);
}

grpc::Status Meeting::Call(const v1::ExchangeRequest& request, absl::Duration deadline,
                           v1::ExchangeReply* reply) {
  grpc::ClientContext context;
  const bool bounded = deadline < absl::InfiniteDuration();
  context.set_wait_for_ready(bounded);  // the first machine may begin later
  if (bounded) context.set_deadline(absl::ToChronoTime(absl::Now() + deadline));
  {
    MutexLock lock(&mutex_);
    if (left_ && !request.leaves()) return grpc::Status::CANCELLED;
    call_ = &context;
  }
  const grpc::Status status = stub_->Exchange(&context, request, reply);
  MutexLock lock(&mutex_);
  call_ = nullptr;
  return left_ && !request.leaves() ? grpc::Status::CANCELLED : status;
}

absl::StatusOr<std::vector<std::string>> Meeting::Exchange(const std::string& data,
                                                           absl::Duration patience) {
  v1::ExchangeRequest request;
  request.set_job(place_.job);
  request.set_ranks(place_.ranks);
  request.set_round(round_++);
  request.mutable_own()->set_first_rank(place_.first_rank);
  request.mutable_own()->set_ranks(place_.local_ranks);
  request.mutable_own()->set_data(data);
  v1::ExchangeReply reply;
  grpc::Status status;
  const Clock::time_point end =
      Clock::now() + (patience < absl::InfiniteDuration() ? absl::ToChronoNanoseconds(patience)
                                                          : std::chrono::nanoseconds(0));
  while (true) {
    const absl::Duration left = patience < absl::InfiniteDuration()
                                    ? absl::FromChrono(end - Clock::now())
                                    : absl::InfiniteDuration();
    if (left < absl::InfiniteDuration()) {
      request.set_patience_seconds(std::max(0.001, absl::ToDoubleSeconds(left)));
    }
    status = Call(request, left + kReplyTime, &reply);
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE || left <= kAskAgain ||
        left == absl::InfiniteDuration()) {
      break;
    }
    absl::SleepFor(kAskAgain);
  }
  const std::string& said = status.error_message();
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      break;
    case grpc::StatusCode::OUT_OF_RANGE:
      return absl::DeadlineExceededError(said);
    case grpc::StatusCode::ABORTED:
      return absl::UnavailableError(said);
    case grpc::StatusCode::FAILED_PRECONDITION:
      return absl::FailedPreconditionError(said);
    case grpc::StatusCode::CANCELLED:
      return absl::CancelledError("told to end before the job's machines had met");
    default:
      return absl::UnavailableError(absl::StrCat(
          "the launcher of rank 0 cannot be reached at ", WithPort(place_.address, place_.port),
          " (", said,
          "); is torchrun started there, and does a firewall let this machine through?"));
  }
  machine_ranks_.clear();
  std::vector<std::string> all;
  for (v1::MachineData& machine : *reply.mutable_machines()) {
    if (machine.first_rank() == place_.first_rank) machine_ = static_cast<int>(all.size());
    machine_ranks_.push_back(machine.ranks());
    all.push_back(std::move(*machine.mutable_data()));
  }
  return all;
}

void Meeting::Leave() {
  MutexLock lock(&mutex_);
  left_ = true;
  if (call_ != nullptr) call_->TryCancel();
}

void Meeting::LeaveFailed() {
  Leave();
  v1::ExchangeRequest request;
  request.set_job(place_.job);
  request.set_round(round_);
  request.mutable_own()->set_first_rank(place_.first_rank);
  request.mutable_own()->set_ranks(place_.local_ranks);
  request.set_leaves(true);
  v1::ExchangeReply reply;
  (void)Call(request, absl::FromChrono(kLastReplies), &reply);
}

}  // namespace megatrain
