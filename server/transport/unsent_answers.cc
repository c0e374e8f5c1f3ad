#include "server/transport/unsent_answers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "server/base/error_reason.h"

namespace megatrain {

size_t UnsentAnswers::bytes() const {
  MutexLock lock(&mutex_);
  size_t sum = 0;
  for (const auto& [uid, account] : accounts_) sum += account.bytes;
  return sum;
}

// Who has nothing unsent may have one answer, however small the bounds are.
bool UnsentAnswers::HasRoom(const Account& account, const void* connection) const {
  if (account.bytes == 0) return true;
  if (account.bytes + kAnswerBytesExpected > options_.caller_bytes_max) return false;
  const auto found = account.connections.find(connection);
  return found == account.connections.end() ||
         found->second + kAnswerBytesExpected <= options_.connection_bytes_max;
}

void UnsentAnswers::Add(Account* account, const void* connection, size_t bytes) {
  account->bytes += bytes;
  account->connections[connection] += bytes;
}

absl::StatusOr<bool> UnsentAnswers::Take(int64_t uid, const void* connection, size_t request_bytes,
                                         std::function<void()> go_on) {
  MutexLock lock(&mutex_);
  Account& account = accounts_[uid];
  if (HasRoom(account, connection)) {
    Add(&account, connection, kAnswerBytesExpected);
    return true;
  }
  if (account.waiting.size() >= options_.waiting_max ||
      account.waiting_bytes + request_bytes > options_.waiting_bytes_max) {
    return WithReason(
        absl::ResourceExhaustedError(absl::StrCat(
            account.waiting.size(), " calls wait for ", account.bytes,
            " bytes of answers that their caller has not read; read them, then try again")),
        v1::ANSWERS_UNREAD);
  }
  account.waiting.push_back({connection, request_bytes, std::move(go_on)});
  account.waiting_bytes += request_bytes;
  return false;
}

void UnsentAnswers::Change(int64_t uid, const void* connection, size_t from, size_t to) {
  mutex_.Lock();
  Account& account = accounts_[uid];
  if (to >= from) {
    Add(&account, connection, to - from);
    mutex_.Unlock();
    return;
  }
  account.bytes -= from - to;
  const auto share = account.connections.find(connection);
  share->second -= from - to;
  if (share->second == 0) account.connections.erase(share);
  // Those that go on may give bytes back at once: the outermost call lets all of them go on, or the
  // stack would grow with their number.
  if (account.resuming) {
    mutex_.Unlock();
    return;
  }
  account.resuming = true;
  for (;;) {
    const auto next =
        std::find_if(account.waiting.begin(), account.waiting.end(),
                     [&](const Waiting& each) { return HasRoom(account, each.connection); });
    if (next == account.waiting.end()) break;
    std::function<void()> go_on = std::move(next->go_on);
    Add(&account, next->connection, kAnswerBytesExpected);
    account.waiting_bytes -= next->request_bytes;
    account.waiting.erase(next);
    mutex_.Unlock();
    go_on();
    go_on = nullptr;  // may hold the last of a call, whose share then comes here
    mutex_.Lock();
  }
  account.resuming = false;
  if (account.bytes == 0) accounts_.erase(uid);
  mutex_.Unlock();
}

absl::StatusOr<bool> AnswerShare::Take(size_t request_bytes, std::function<void()> go_on) {
  bytes_ = UnsentAnswers::kAnswerBytesExpected;
  absl::StatusOr<bool> taken = answers_->Take(uid_, connection_, request_bytes, std::move(go_on));
  if (!taken.ok()) bytes_ = 0;
  return taken;
}

void AnswerShare::SetBytes(size_t bytes) {
  if (bytes == bytes_) return;
  const size_t before = std::exchange(bytes_, bytes);
  answers_->Change(uid_, connection_, before, bytes);
}

}  // namespace megatrain
