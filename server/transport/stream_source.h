// StreamSource gives a stream its messages. It keeps a position in a series and buffers little,
// because it makes a message only when the stream can send it.
#ifndef MEGATRAIN_SERVER_TRANSPORT_STREAM_SOURCE_H_
#define MEGATRAIN_SERVER_TRANSPORT_STREAM_SOURCE_H_

#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

namespace megatrain {

enum class StreamNext {
  kMessage,  // the message was filled in
  kNothing,  // there is nothing new
  kEnd,      // there will be nothing new
};

// A source may be given a function `wake` when it is made (StreamCall::Open). Any thread may call
// it when there may be news. It does nothing once the stream is destroyed.
//
// Thread safety: one thread at a time. The methods are called on the thread of all streams
// (TurnScheduler), so they must return soon.
template <class Message>
class StreamSource {
 public:
  virtual ~StreamSource() = default;

  // Fills in the next message, if there is one, and returns kMessage. Does not wait for one.
  // `message` is empty before the call, and must be left empty with kNothing. Next is not called
  // after kEnd or an error, with which the stream ends.
  virtual absl::StatusOr<StreamNext> Next(Message* message) = 0;

  // Returns true if the next message is to be sent at once, without waiting for
  // StreamOptions::pace (service_context.h).
  virtual bool Urgent() const { return false; }

  // Returns the sequence number of the next record, for heartbeats; 0 for series without numbers.
  virtual int64_t next_sequence() const = 0;

  // Returns how long after kNothing the stream calls Next again, if the source does not wake it
  // before.
  virtual std::chrono::milliseconds poll_interval() const = 0;
};

// A source that was made, or why there is none.
template <class Message>
using OpenedSource = absl::StatusOr<std::unique_ptr<StreamSource<Message>>>;

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_STREAM_SOURCE_H_
