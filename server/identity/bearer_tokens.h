// BearerTokens checks tokens against a tokens file. It reads the file again when it has changed, so
// that a token that is added or revoked counts within a second, without a restart.
//
// While the file is unreadable or malformed no token is good, since any may have been revoked. The
// log says so when Verify finds that this has begun, that its cause has changed, or that the file
// is good again.
//
// Thread safety: all methods may be called from any thread.
#ifndef MEGATRAIN_SERVER_IDENTITY_BEARER_TOKENS_H_
#define MEGATRAIN_SERVER_IDENTITY_BEARER_TOKENS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"
#include "server/identity/file_look.h"
#include "server/identity/token_file.h"

namespace megatrain {

class BearerTokens {
 public:
  struct Options {
    // Both are called with a lock held, `log` by Verify only: they must not call this object.
    // Neither may be empty.
    std::function<void(const std::string& line)> log = [](const std::string&) {};
    std::function<absl::Time()> now = absl::Now;
  };

  // Verify looks at the file no more often than this.
  static constexpr absl::Duration kLookInterval = absl::Seconds(1);

  // Reads the file. Returns the errors of ReadTokenFile.
  static absl::StatusOr<std::unique_ptr<BearerTokens>> Open(const std::string& path,
                                                            Options options);

  // Reads `path` and takes its tokens in place of those before. Returns the errors of Open; then
  // nothing has changed, with one exception. The file is read twice, and if it turns bad in
  // between, no token is good until the file is.
  absl::Status Reload(const std::string& path);

  // Returns the user of `token`, "mt_ID_SECRET". Reads the file if it has changed. Returns
  // Unauthenticated with TOKEN_EXPIRED if the token has expired, and with TOKEN_INVALID if it is
  // malformed, not in the file, or the file is not good.
  absl::StatusOr<std::string> Verify(std::string_view token);

 private:
  BearerTokens(std::string path, Options options)
      : options_(std::move(options)), path_(std::move(path)) {}
  absl::Status Read() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refresh() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Options options_;
  Mutex mutex_;
  std::string path_ ABSL_GUARDED_BY(mutex_);
  absl::Time looked_ ABSL_GUARDED_BY(mutex_);
  FileLook look_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, StoredToken> tokens_ ABSL_GUARDED_BY(mutex_);  // by ID
  absl::Status problem_ ABSL_GUARDED_BY(mutex_);                       // of the last reading
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_IDENTITY_BEARER_TOKENS_H_
