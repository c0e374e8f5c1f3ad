// Looks up accounts in this machine's account database (getpwnam(3)). Every caller of the daemon
// but its own user must have such an account.
//
// Thread safety: all functions may be called from any thread. Those that read the account database
// may wait for a directory service that does not answer.
#ifndef MEGATRAIN_SERVER_IDENTITY_ACCOUNT_H_
#define MEGATRAIN_SERVER_IDENTITY_ACCOUNT_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"

namespace megatrain {

struct Account {
  uid_t uid = 0;
  gid_t gid = 0;
  std::string name;

  bool operator==(const Account&) const = default;
};

// The key of a look-up: an account's number or its name.
using AccountKey = std::variant<uid_t, std::string>;

// Reads the account database. Returns NotFound if this machine has no such account, and Unavailable
// if the database cannot be read. An empty name and one with a NUL byte are NotFound.
absl::StatusOr<Account> FindAccount(const AccountKey& key);

// AccountCache remembers answers of the account database for a short time. It holds no lock while
// the database is read.
class AccountCache {
 public:
  // The functions are called on the threads that call the cache, by several at once. Neither may be
  // empty.
  struct Options {
    std::function<absl::StatusOr<Account>(const AccountKey& key)> find = FindAccount;
    std::function<absl::Time()> now = absl::Now;
  };

  // How long an answer, also NotFound, is used. Unavailable is not remembered.
  static constexpr absl::Duration kAnswerLifetime = absl::Seconds(10);

  AccountCache() : AccountCache(Options()) {}
  explicit AccountCache(Options options) : options_(std::move(options)) {}

  // Returns what FindAccount returns, or an answer in memory that is younger than kAnswerLifetime.
  // All answers are dropped when there are many.
  absl::StatusOr<Account> Find(const AccountKey& key) const;

  // Returns what Find would return from memory; nullopt if Find would read the database.
  std::optional<absl::StatusOr<Account>> FindInMemory(const AccountKey& key) const;

 private:
  struct Known {
    absl::Time found;
    absl::StatusOr<Account> account;
  };

  const Options options_;
  mutable Mutex mutex_;  // not held while the database is read
  mutable std::map<AccountKey, Known> known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_IDENTITY_ACCOUNT_H_
