// The file of bearer tokens, as an administrator writes it with `megatraind token` and the daemon
// reads it. Text, a token a line, fields parted by spaces; lines that begin with # say nothing:
//   ID SHA256 USER CREATED EXPIRES
//   3f9a01bc22d4e6f7 2c26b4...  anna 2025-01-31T12:00:00Z never
// A token is "mt_ID_SECRET", both in lower-case hexadecimal. Its secret is 256 random bits, so that
// nobody can guess it from its hash, and a plain SHA-256 is enough: salts and slow hashes are for
// passwords, which people choose.
//
// The file is for its owner's eyes alone (mode 0600), and is replaced as a whole.
#ifndef MEGATRAIN_SERVER_IDENTITY_TOKEN_FILE_H_
#define MEGATRAIN_SERVER_IDENTITY_TOKEN_FILE_H_

#include <sys/stat.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace megatrain {

inline constexpr char kBearerTokenPrefix[] = "mt_";

struct StoredToken {
  std::string id;
  std::string hash;  // of the secret, 32 bytes
  std::string user;
  absl::Time created;
  absl::Time expires = absl::InfiniteFuture();

  bool operator==(const StoredToken&) const = default;
};

struct NewToken {
  StoredToken stored;
  std::string text;  // what its user is given
};

// Draws a new token. Times are cut to the second. Unavailable if the system has no random bytes.
absl::StatusOr<NewToken> MakeToken(const std::string& user, absl::Time created, absl::Time expires);

// The parts of "mt_ID_SECRET".
struct TokenParts {
  std::string id;
  std::string hash;  // of the secret that is in the text
};
// Reads the text of a token. InvalidArgument if it is not of the form "mt_ID_SECRET".
absl::StatusOr<TokenParts> ParseToken(std::string_view text);

// Reads the text of a tokens file. InvalidArgument "NAME:LINE: what is wrong", also for an ID that
// is there twice.
absl::StatusOr<std::vector<StoredToken>> ParseTokenFile(std::string_view text,
                                                        const std::string& name);
// Returns the text of a tokens file with these tokens.
std::string FormatTokenFile(const std::vector<StoredToken>& tokens);

// Reads a tokens file. `info`, if not null, becomes the state of the file when it was opened, also
// if the file is malformed. NotFound, PermissionDenied and other codes of FileError.
// InvalidArgument if it is malformed, too long or no regular file, if others than its owner may
// read or write it, or if it belongs to another account than this process' or root's, unless this
// process is root.
absl::StatusOr<std::vector<StoredToken>> ReadTokenFile(const std::string& path,
                                                       struct stat* info = nullptr);

// Replaces the tokens of `path` by what `edit` makes of them; a missing file has no tokens. Waits
// until no other process edits a file of the directory. Returns the error of `edit`, or one of
// ReadTokenFile and FileError; the file then stays as it is. The new file belongs to the owner of
// the old one, and a first one to the owner of its directory, so that root may edit the daemon's.
absl::Status EditTokenFile(
    const std::string& path,
    const std::function<absl::Status(std::vector<StoredToken>* tokens)>& edit);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_IDENTITY_TOKEN_FILE_H_
