// The files that prove this user to a server on TCP, and the server to this user.
#ifndef MEGATRAIN_CLIENT_CONNECTION_CREDENTIALS_H_
#define MEGATRAIN_CLIENT_CONNECTION_CREDENTIALS_H_

#include <string>

#include "absl/status/statusor.h"

namespace megatrain::client {

// Paths of files, absolute; empty: none.
struct CredentialFiles {
  std::string ca;           // PEM: issuers of the server's certificate; none: those of the system
  std::string certificate;  // PEM: the user's certificate
  std::string key;          // PEM: of that certificate
  std::string token;        // holds a token, as `megatraind token add` printed it

  bool operator==(const CredentialFiles&) const = default;
};

// The contents of the files; empty: none.
struct Credentials {
  std::string ca, certificate, key, token;
};

// Reads the files. InvalidArgument names the file and what is wrong: not there, empty, a
// certificate without its key, or a key or token that others than its owner may read.
absl::StatusOr<Credentials> ReadCredentials(const CredentialFiles& files);

// Whether `text` can be sent as a token in a call's metadata: printable ASCII without spaces.
bool IsToken(const std::string& text);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_CREDENTIALS_H_
