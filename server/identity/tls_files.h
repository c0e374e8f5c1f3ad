// Reads and checks the PEM files that TLS is served with: before anything listens, and again when
// they have changed (TlsFileWatch).
#ifndef MEGATRAIN_SERVER_IDENTITY_TLS_FILES_H_
#define MEGATRAIN_SERVER_IDENTITY_TLS_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace megatrain {

struct TlsPaths {
  std::string certificate;  // the server's, with its chain after it
  std::string key;
  std::string client_ca;  // the authorities that issue clients' certificates; "" = none asked for

  bool operator==(const TlsPaths&) const = default;
};

struct TlsFiles {
  // The contents of the files; client_ca is empty without a path.
  std::string certificate, key, client_ca;
  // The time from which the server's own certificate is no longer valid.
  absl::Time expires = absl::InfiniteFuture();
  // Lines for the log, of certificates that have expired or are not valid yet.
  std::vector<std::string> warnings;
};

// Reads the files and checks that they fit together. A certificate that is not valid at the time
// `now` is no error, but gives a warning. Errors name the configuration's key (tls.certificate,
// ...), the file and what is wrong. Returns InvalidArgument if a file is not PEM, or if the key is
// encrypted, belongs to another certificate or is open to others than its owner. (The group may
// read a key that belongs to root.) Returns OutOfRange for a file of more than 1 MiB, and the
// errors of engine/base/file.h for one that cannot be read.
absl::StatusOr<TlsFiles> ReadTlsFiles(const TlsPaths& paths, absl::Time now);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_IDENTITY_TLS_FILES_H_
