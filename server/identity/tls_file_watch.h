// TlsFileWatch holds the files that TLS is served with, and reads them again when they have
// changed. Certificates are renewed every few weeks, and a daemon that trains for longer is not
// restarted for that.
//
// If changed files are not good (a certificate whose key is not there yet, a key that others may
// read), TLS is still served with the last good ones. The log says why if the files have the same
// fault at the next look. It does not say so at once, since a renewal may have been caught between
// two files.
//
// Thread safety: all methods may be called from any thread. They read files of at most 1 MiB each.
#ifndef MEGATRAIN_SERVER_IDENTITY_TLS_FILE_WATCH_H_
#define MEGATRAIN_SERVER_IDENTITY_TLS_FILE_WATCH_H_

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/base/mutex.h"
#include "server/identity/file_look.h"
#include "server/identity/tls_files.h"

namespace megatrain {

class TlsFileWatch {
 public:
  struct Options {
    // Both are called by the methods, with a lock held: they must not call this object. Neither may
    // be empty.
    std::function<void(const std::string& line)> log = [](const std::string&) {};
    std::function<absl::Time()> now = absl::Now;
  };

  // Current looks at the files no more often than this.
  static constexpr absl::Duration kLookInterval = absl::Seconds(1);

  // Reads the files, and logs the warnings of ReadTlsFiles. Returns its errors.
  static absl::StatusOr<std::unique_ptr<TlsFileWatch>> Open(const TlsPaths& paths, Options options);

  // Reads the files at `paths` and takes them in place of those before. Returns the errors of Open,
  // after which nothing has changed. Clients are asked for certificates if they were before.
  // REQUIRES: paths.client_ca is not empty if they were.
  absl::Status Reload(const TlsPaths& paths);

  // Looks whether the files have changed, at most once in kLookInterval, and returns the newest
  // good ones; never null. Returns the same object until files are read again.
  std::shared_ptr<const TlsFiles> Current();

  // Returns true if Open was given a client_ca.
  bool asks_for_client_certificates() const { return asks_for_client_certificates_; }

 private:
  using Looks = std::array<std::optional<FileLook>, 3>;

  TlsFileWatch(const TlsPaths& paths, Options options)
      : asks_for_client_certificates_(!paths.client_ca.empty()),
        options_(std::move(options)),
        paths_(paths) {}
  Looks Look(const TlsPaths& paths) const;
  absl::Status Read(const TlsPaths& paths) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const bool asks_for_client_certificates_;
  const Options options_;
  Mutex mutex_;
  TlsPaths paths_ ABSL_GUARDED_BY(mutex_);
  absl::Time looked_ ABSL_GUARDED_BY(mutex_);
  Looks looks_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const TlsFiles> good_ ABSL_GUARDED_BY(mutex_);
  absl::Status problem_ ABSL_GUARDED_BY(mutex_);  // of the last reading
  bool told_ ABSL_GUARDED_BY(mutex_) = false;     // of problem_
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_IDENTITY_TLS_FILE_WATCH_H_
