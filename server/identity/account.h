// The accounts of this machine: who a caller is in the end, however that was proved.
//
// Thread safety: all methods may be called from any thread. A look-up is answered from memory if it
// was made within the last seconds; else it reads the system's account database, which waits for
// whatever that is (files, or a directory service).
#ifndef MEGATRAIN_SERVER_IDENTITY_ACCOUNT_H_
#define MEGATRAIN_SERVER_IDENTITY_ACCOUNT_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>

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

// NotFound: this machine has no such account. Unavailable: its database cannot be read.
absl::StatusOr<Account> FindAccount(const std::string& name);
absl::StatusOr<Account> FindAccount(uid_t uid);

class AccountCache {
 public:
  struct Options {
    std::function<absl::StatusOr<Account>(const std::string& name)> find_name =
        [](const std::string& name) { return FindAccount(name); };
    std::function<absl::StatusOr<Account>(uid_t uid)> find_uid = [](uid_t uid) {
      return FindAccount(uid);
    };
    std::function<absl::Time()> now = absl::Now;
  };

  // What was found, or not, is believed for this long.
  static constexpr absl::Duration kBelieved = absl::Seconds(10);

  AccountCache() : AccountCache(Options()) {}
  explicit AccountCache(Options options) : options_(std::move(options)) {}

  absl::StatusOr<Account> Find(const std::string& name) const;
  absl::StatusOr<Account> Find(uid_t uid) const;

  // What Find would answer from memory; nothing if it would read the database.
  std::optional<absl::StatusOr<Account>> FindInMemory(const std::string& name) const;
  std::optional<absl::StatusOr<Account>> FindInMemory(uid_t uid) const;

 private:
  struct Known {
    absl::Time found;
    absl::StatusOr<Account> account;
  };
  struct Maps {
    std::map<std::string, Known> by_name;
    std::map<uid_t, Known> by_uid;
  };
  template <class Key>
  std::optional<absl::StatusOr<Account>> Remember(const Key& key, absl::Time now,
                                                  std::map<Key, Known> Maps::*map) const;
  // `look_up` is asked without the lock.
  template <class Key, class LookUp>
  absl::StatusOr<Account> Look(const Key& key, const LookUp& look_up,
                               std::map<Key, Known> Maps::*map) const;

  const Options options_;
  mutable Mutex mutex_;
  mutable Maps known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_IDENTITY_ACCOUNT_H_
