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

absl::StatusOr<Account> FindAccount(const std::string& name) {
  // A name with a NUL would be looked up as what stands before it.
  if (name.empty() || name.find('\0') != std::string::npos) {
    return absl::NotFoundError("this machine has no account of that name");
  }
  return Find(name, [&name](passwd* entry, std::vector<char>* buffer, passwd** found) {
    return getpwnam_r(name.c_str(), entry, buffer->data(), buffer->size(), found);
  });
}

absl::StatusOr<Account> FindAccount(uid_t uid) {
  return Find(absl::StrCat("with the number ", uid),
              [uid](passwd* entry, std::vector<char>* buffer, passwd** found) {
                return getpwuid_r(uid, entry, buffer->data(), buffer->size(), found);
              });
}

template <class Key>
std::optional<absl::StatusOr<Account>> AccountCache::Remember(
    const Key& key, absl::Time now, std::map<Key, Known> Maps::*map) const {
  MutexLock lock(&mutex_);
  const auto known = (known_.*map).find(key);
  if (known == (known_.*map).end()) return std::nullopt;
  const absl::Duration age = now - known->second.found;
  // Negative: the clock was set back.
  if (age < absl::ZeroDuration() || age >= kBelieved) return std::nullopt;
  return known->second.account;
}

template <class Key, class LookUp>
absl::StatusOr<Account> AccountCache::Look(const Key& key, const LookUp& look_up,
                                           std::map<Key, Known> Maps::*map) const {
  const absl::Time now = options_.now();
  if (std::optional<absl::StatusOr<Account>> known = Remember(key, now, map)) {
    return *std::move(known);
  }
  absl::StatusOr<Account> account = look_up(key);
  if (absl::IsUnavailable(account.status())) return account;
  MutexLock lock(&mutex_);
  if ((known_.*map).size() >= kKnownMax) (known_.*map).clear();
  (known_.*map).insert_or_assign(key, Known{now, account});
  return account;
}

absl::StatusOr<Account> AccountCache::Find(const std::string& name) const {
  return Look(name, options_.find_name, &Maps::by_name);
}

absl::StatusOr<Account> AccountCache::Find(uid_t uid) const {
  return Look(uid, options_.find_uid, &Maps::by_uid);
}

std::optional<absl::StatusOr<Account>> AccountCache::FindInMemory(const std::string& name) const {
  return Remember(name, options_.now(), &Maps::by_name);
}

std::optional<absl::StatusOr<Account>> AccountCache::FindInMemory(uid_t uid) const {
  return Remember(uid, options_.now(), &Maps::by_uid);
}

}  // namespace megatrain
