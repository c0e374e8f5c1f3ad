#include "client/connection/call_token.h"

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "client/connection/local_token.h"

namespace megatrain::client {
namespace {

// Whether a socket is private is looked at again after this: the daemon may be another by then.
constexpr absl::Duration kNoTokenBelieved = absl::Seconds(10);

}  // namespace

CallToken::CallToken(const ServerAddress& address, const std::string& token)
    : address_(address), token_(address.local() ? "" : token) {}

std::string CallToken::Get() {
  MutexLock lock(&mutex_);
  if (address_.local() && absl::Now() >= renew_) Fetch();
  return token_;
}

bool CallToken::Renew(const std::string& token) {
  if (!address_.local()) return false;
  MutexLock lock(&mutex_);
  if (token_ == token) Fetch();  // else another thread has been here
  return !token_.empty() && token_ != token;
}

absl::Status CallToken::problem() const {
  MutexLock lock(&mutex_);
  return problem_;
}

void CallToken::Fetch() {
  const absl::StatusOr<LocalToken> fetched = FetchLocalToken(address_.socket_path);
  // Without one a call goes out as it is: if the server is not there, it is the call that says so.
  token_ = fetched.ok() ? fetched->token : "";
  renew_ = absl::Now() + (fetched.ok() ? fetched->lifetime / 2 : kNoTokenBelieved);
  problem_ = absl::IsNotFound(fetched.status()) ? absl::OkStatus() : fetched.status();
}

}  // namespace megatrain::client
