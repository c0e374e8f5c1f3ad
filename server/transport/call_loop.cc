#include "server/transport/call_loop.h"

#include <utility>

#include "engine/base/thread_name.h"

namespace megatrain {
namespace {

// Over which calls are counted. Short, so that a client which calls as fast as it can is soon seen.
constexpr std::chrono::milliseconds kWindow{50};
// A poll that finds nothing may have read bytes that end no event, as a ping's answer, and have
// left others unread.
constexpr int kEmptyPolls = 12;

}  // namespace

CallLoop::CallLoop(std::unique_ptr<grpc::ServerCompletionQueue> queue, const Options& options)
    : queue_(std::move(queue)), options_(options), thread_([this] { Run(); }) {}

CallLoop::~CallLoop() { Stop(); }

void CallLoop::Opened() {
  MutexLock lock(&mutex_);
  ++open_;
}

void CallLoop::Closed() {
  MutexLock lock(&mutex_);
  if (--open_ == 0) closed_.NotifyAll();
}

void CallLoop::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mutex_);
    while (open_ > 0) closed_.Wait(&mutex_);
  }
  queue_->Shutdown();
  thread_.join();
}

bool CallLoop::Naps() {
  const Clock::time_point now = Clock::now();
  const Clock::duration passed = now - window_begin_;
  if (passed >= kWindow) {
    const double seconds = std::chrono::duration<double>(passed).count();
    const auto calls = static_cast<double>(answered_ - answered_before_window_);
    busy_ = calls > options_.calls_per_second_max * seconds;
    window_begin_ = now;
    answered_before_window_ = answered_;
  }
  return !busy_ && options_.gather && options_.gather();
}

void CallLoop::Run() {
  NameThisThread("rpc");
  int64_t answered_before_burst = 0;
  int empty_polls = 0;
  bool naps = false;
  for (;;) {
    void* tag = nullptr;
    bool ok = false;
    if (answered_ > answered_before_burst && empty_polls < kEmptyPolls) {
      const grpc::CompletionQueue::NextStatus next =
          queue_->AsyncNext(&tag, &ok, std::chrono::system_clock::time_point());
      if (next == grpc::CompletionQueue::SHUTDOWN) return;
      if (next == grpc::CompletionQueue::TIMEOUT) {
        if (empty_polls++ == 0) naps = Naps();
        if (!naps) {
          empty_polls = kEmptyPolls;  // waits at once
        } else if (empty_polls == kEmptyPolls) {
          std::this_thread::sleep_for(options_.nap);
        }
        continue;
      }
    } else {
      answered_before_burst = answered_;
      empty_polls = 0;
      if (!queue_->Next(&tag, &ok)) return;
    }
    CallEvent::Of(tag)->Happened(ok);
  }
}

}  // namespace megatrain
