// Reads the files with which this user and a server on TCP prove to each other who they are.
#ifndef MEGATRAIN_CLIENT_CONNECTION_CREDENTIALS_H_
#define MEGATRAIN_CLIENT_CONNECTION_CREDENTIALS_H_

#include <string>

#include "absl/status/statusor.h"

namespace megatrain::client {

// Paths of files. Relative ones start at the working directory. An empty path means that there is
// none.
struct CredentialFiles {
  std::string ca;           // PEM: trusted issuers of server certificates; empty: the system's
  std::string certificate;  // PEM: the user's certificate
  std::string key;          // PEM: the private key of `certificate`
  std::string token;        // holds a token, as `megatraind token add` printed it

  bool operator==(const CredentialFiles&) const = default;
};

// The contents of the files, the token without white space around it. An empty one means that there
// is none.
struct Credentials {
  std::string ca, certificate, key, token;
};

// Reads the files. Returns InvalidArgument, naming the file, if one cannot be read, is not a
// regular file or is empty; if the token's file holds no token (IsToken); or if others than the
// owner have any access to the file of the key or the token. Returns InvalidArgument for a
// certificate without a key and for a key without a certificate. Whether the PEM texts are valid is
// not checked.
absl::StatusOr<Credentials> ReadCredentials(const CredentialFiles& files);

// Returns true if `text` can be sent as a token in a call's metadata: it is not empty and has only
// printable ASCII characters other than spaces.
bool IsToken(const std::string& text);

}  // namespace megatrain::client

#endif  // MEGATRAIN_CLIENT_CONNECTION_CREDENTIALS_H_
