// Reads and writes the file of bearer tokens. An administrator writes it with `megatraind token`,
// and the daemon reads it. It is text. Empty lines and lines that begin with # are ignored. Each
// other line has the fields of one token, separated by spaces or tabs:
//   ID SHA256 USER CREATED EXPIRES
//   3f9a01bc22d4e6f7 2c26b4...  anna 2025-01-31T12:00:00Z never
// A token is "mt_ID_SECRET". ID has 16 lower-case hexadecimal digits, and SECRET 64. A plain
// SHA-256 of the secret is enough, because nobody can guess 256 random bits from their hash.
//
// Only the owner may read or write the file (mode 0600). It is replaced as a whole.
//
// Thread safety: all functions may be called from any thread.
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
  std::string id;    // 16 digits
  std::string hash;  // SHA-256 of the secret's 64 digits, as 32 bytes
  std::string user;  // the name of the account that the token stands for
  absl::Time created;
  absl::Time expires = absl::InfiniteFuture();

  bool operator==(const StoredToken&) const = default;
};

struct NewToken {
  StoredToken stored;
  std::string text;  // "mt_ID_SECRET", which only its user is given
};

// Makes a new token. Returns Unavailable if the system gives no random bytes. Times are cut to the
// second. REQUIRES: `user` is not empty and has no white space.
absl::StatusOr<NewToken> MakeToken(const std::string& user, absl::Time created, absl::Time expires);

struct TokenParts {
  std::string id;
  std::string hash;  // as StoredToken::hash
};
// Reads the text of a token. Returns InvalidArgument if it is not of the form "mt_ID_SECRET".
absl::StatusOr<TokenParts> ParseToken(std::string_view text);

// Reads the text of a tokens file. Returns InvalidArgument, "NAME:LINE: what is wrong", for a
// malformed line or an ID that is there twice.
absl::StatusOr<std::vector<StoredToken>> ParseTokenFile(std::string_view text,
                                                        const std::string& name);
// Returns the text of a time in the file, "2025-01-31T12:00:00Z"; "never" for the infinite future.
std::string TokenTimeText(absl::Time time);
// Returns the text of a tokens file with these tokens.
std::string FormatTokenFile(const std::vector<StoredToken>& tokens);

// Reads a tokens file. If `info` is not null, it is set to the state of the file when it was
// opened, even if the file is refused. It is left alone if the file cannot be opened. Returns the
// codes of FileError, and DataLoss if the file is cut short meanwhile. Returns InvalidArgument if
// the file is malformed, longer than 16 MiB or no regular file, if others than its owner have any
// access to it, or if it belongs neither to this process's user nor to root. (Root reads the file
// of any owner.)
absl::StatusOr<std::vector<StoredToken>> ReadTokenFile(const std::string& path,
                                                       struct stat* info = nullptr);

// Replaces the tokens of `path` by what `edit` makes of them, and drops the file's own comments. A
// missing file has no tokens. Locks the directory and waits for other editors of files in it, so
// `edit` must not edit a tokens file. Returns the error of `edit`, or one of ReadTokenFile or
// FileError. The file is unchanged then, unless only the sync of its directory failed. When root
// edits, the file keeps its owner and group, or a new one gets those of its directory. Otherwise it
// belongs to this process's user.
absl::Status EditTokenFile(
    const std::string& path,
    const std::function<absl::Status(std::vector<StoredToken>* tokens)>& edit);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_IDENTITY_TOKEN_FILE_H_
