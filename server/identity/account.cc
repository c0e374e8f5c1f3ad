#include "server/identity/account.h"

#include <pwd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

constexpr size_t kEntryBytesMax = size_t{1} << 20;
// Callers can make it grow by asking with other names.
constexpr size_t kKnownMax = 1024;

// `look_up` is getpwnam_r or getpwuid_r with its first argument bound.
template <class LookUp>
absl::StatusOr<Account> Find(const std::string& who, LookUp look_up) {
  std::vector<char> buffer(4096);
  passwd entry = {};
  passwd* found = nullptr;
  int error = look_up(&entry, &buffer, &found);
  while (error == ERANGE && buffer.size() < kEntryBytesMax) {
    buffer.resize(2 * buffer.size());
    error = look_up(&entry, &buffer, &found);
  }
  if (found != nullptr) return Account{entry.pw_uid, entry.pw_gid, entry.pw_name};
  // What getpwnam(3) lists as "not found", beside 0.
  if (error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM) {
    return absl::NotFoundError(absl::StrCat("this machine has no account ", who));
  }
  return absl::UnavailableError(
      absl::StrCat("cannot look up the account ", who, ": ", std::strerror(error)));
}

}  // namespace

absl::StatusOr<Account> FindAccount(const AccountKey& key) {
  if (const uid_t* const uid = std::get_if<uid_t>(&key)) {
    return Find(absl::StrCat("with the number ", *uid),
                [uid](passwd* entry, std::vector<char>* buffer, passwd** found) {
                  return getpwuid_r(*uid, entry, buffer->data(), buffer->size(), found);
                });
  }
  const std::string& name = std::get<std::string>(key);
  // A name with a NUL would be looked up as what stands before it.
  if (name.empty() || name.find('\0') != std::string::npos) {
    return absl::NotFoundError("this machine has no account of that name");
  }
  return Find(name, [&name](passwd* entry, std::vector<char>* buffer, passwd** found) {
    return getpwnam_r(name.c_str(), entry, buffer->data(), buffer->size(), found);
  });
}

std::optional<absl::StatusOr<Account>> AccountCache::FindInMemory(const AccountKey& key) const {
  const absl::Time now = options_.now();
  MutexLock lock(&mutex_);
  const auto known = known_.find(key);
  if (known == known_.end()) return std::nullopt;
  const absl::Duration age = now - known->second.found;
  // Negative: the clock was set back.
  if (age < absl::ZeroDuration() || age >= kAnswerLifetime) return std::nullopt;
  return known->second.account;
}

absl::StatusOr<Account> AccountCache::Find(const AccountKey& key) const {
  if (std::optional<absl::StatusOr<Account>> known = FindInMemory(key)) return *std::move(known);
  const absl::Time now = options_.now();
  absl::StatusOr<Account> account = options_.find(key);
  if (absl::IsUnavailable(account.status())) return account;
  MutexLock lock(&mutex_);
  if (known_.size() >= kKnownMax) known_.clear();
  known_.insert_or_assign(key, Known{now, account});
  return account;
}

}  // namespace megatrain
