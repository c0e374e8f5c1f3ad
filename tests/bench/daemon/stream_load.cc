#include "tests/bench/daemon/stream_load.h"

#include <algorithm>

namespace megatrain {

StreamLoad::StreamLoad(const DaemonProcess& daemon, const std::string& job, int streams,
                       int connections) {
  for (int i = 0; i < connections; ++i) {
    stubs_.push_back(v1::JobService::NewStub(daemon.NewChannel()));
  }
  v1::StreamStepMetricsRequest request;
  request.set_name(job);
  request.set_follow(true);
  open_ = streams;
  for (int i = 0; i < streams; ++i) {
    streams_.push_back(std::make_unique<Stream>());
    Stream* const stream = streams_.back().get();
    stream->reader = stubs_[static_cast<size_t>(i) % stubs_.size()]->AsyncStreamStepMetrics(
        &stream->context, request, &queue_, stream);
  }
  thread_ = std::thread([this] { Run(); });
}

StreamLoad::~StreamLoad() {
  ending_ = true;
  for (const std::unique_ptr<Stream>& stream : streams_) stream->context.TryCancel();
  thread_.join();
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

StreamCounts StreamLoad::Counts() const {
  StreamCounts counts{open_, messages_, records_, lost_, twice_, failed_, 0};
  for (size_t i = 0; i < streams_.size(); ++i) {
    const int64_t reached = streams_[i]->next - 1;
    counts.slowest = i == 0 ? reached : std::min(counts.slowest, reached);
  }
  return counts;
}

void StreamLoad::Run() {
  void* tag = nullptr;
  bool ok = false;
  while (open_ > 0 && queue_.Next(&tag, &ok)) {
    auto* const stream = static_cast<Stream*>(tag);
    if (stream->waiting == Stream::Waiting::kEnd) {
      if (!ending_ && !stream->status.ok()) ++failed_;
      --open_;
      continue;
    }
    if (stream->waiting == Stream::Waiting::kMessage && ok) Take(stream);
    if (ok) {
      stream->waiting = Stream::Waiting::kMessage;
      stream->reader->Read(&stream->message, stream);
    } else {
      stream->waiting = Stream::Waiting::kEnd;
      stream->reader->Finish(&stream->status, stream);
    }
  }
}

void StreamLoad::Take(Stream* stream) {
  const v1::StreamStepMetricsResponse& message = stream->message;
  if (message.has_heartbeat()) return;
  ++messages_;
  for (const v1::StepMetricsRecord& record : message.batch().records()) {
    Expect(stream, record.sequence());
    ++records_;
  }
  if (message.has_fell_back()) Expect(stream, message.fell_back().sequence());
  if (message.has_missed()) {
    lost_ += message.missed().last_sequence() - stream->next + 1;
    stream->next = message.missed().last_sequence() + 1;
  }
}

void StreamLoad::Expect(Stream* stream, int64_t sequence) {
  if (sequence < stream->next) ++twice_;
  if (sequence > stream->next) lost_ += sequence - stream->next;
  if (sequence >= stream->next) stream->next = sequence + 1;
}

}  // namespace megatrain
