// A source of a stream's messages. It is a place in a series, and buffers little: messages are made
// when the stream can send them.
#ifndef MEGATRAIN_SERVER_TRANSPORT_STREAM_SOURCE_H_
#define MEGATRAIN_SERVER_TRANSPORT_STREAM_SOURCE_H_

#include <chrono>
#include <cstdint>

#include "absl/status/statusor.h"

namespace megatrain {

enum class StreamNext {
  kMessage,  // the message was filled in
  kNothing,  // there is nothing new
  kEnd,      // there will be nothing new
};

// A source is made with a function `wake`, which it calls, from any thread, when there is news, and
// no more once it is destroyed.
//
// Thread safety: one thread at a time.
template <class Message>
class StreamSource {
 public:
  virtual ~StreamSource() = default;

  // Fills in the next message of the stream, if there is one. Does not wait for one. `message` is
  // empty before, and unspecified after kNothing and kEnd. An error ends the stream with it.
  virtual absl::StatusOr<StreamNext> Next(Message* message) = 0;

  // Whether the next message is to be sent at once, without waiting for StreamOptions::pace.
  virtual bool Urgent() const { return false; }

  // The sequence number of the record to come, which heartbeats tell; 0 for series without numbers.
  virtual int64_t next_sequence() const = 0;

  // How long after kNothing Next is called again, if the source did not wake the stream before.
  virtual std::chrono::milliseconds poll_interval() const = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_TRANSPORT_STREAM_SOURCE_H_
