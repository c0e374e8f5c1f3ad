#include "server/identity/token_file.h"

#include <fcntl.h>
#include <openssl/sha.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "engine/base/descriptor.h"
#include "engine/base/descriptor_file.h"
#include "engine/base/file.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

constexpr size_t kIdBytes = 8;
constexpr size_t kSecretBytes = 32;
// A hundred thousand tokens.
constexpr off_t kFileBytesMax = off_t{16} << 20;
constexpr char kNever[] = "never";

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

bool IsHex(absl::string_view text, size_t bytes) {
  return text.size() == 2 * bytes && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
         });
}

// Of the text of a secret, as users send it.
std::string Sha256(absl::string_view text) {
  unsigned char hash[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), hash);
  return std::string(reinterpret_cast<const char*>(hash), sizeof(hash));
}

absl::StatusOr<std::string> RandomHex(size_t bytes) {
  std::string random(bytes, '\0');
  if (getrandom(random.data(), bytes, 0) != static_cast<ssize_t>(bytes)) {
    return absl::UnavailableError(
        absl::StrCat("the system gives no random bytes: ", std::strerror(errno)));
  }
  return absl::BytesToHexString(random);
}

bool ReadTime(absl::string_view text, absl::Time* time) {
  std::string error;
  return absl::ParseTime("%Y-%m-%dT%H:%M:%SZ", text, time, &error);
}

// What is wrong with a line, or "".
std::string ParseLine(absl::string_view line, StoredToken* token) {
  const std::vector<absl::string_view> fields =
      absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (fields.size() != 5) {
    return absl::StrCat("expects ID SHA256 USER CREATED EXPIRES, got ", fields.size(), " fields");
  }
  if (!IsHex(fields[0], kIdBytes)) return "the ID is not 16 hexadecimal digits";
  if (!IsHex(fields[1], SHA256_DIGEST_LENGTH)) return "the hash is not 64 hexadecimal digits";
  token->id = std::string(fields[0]);
  token->hash = absl::HexStringToBytes(fields[1]);
  token->user = std::string(fields[2]);
  if (!ReadTime(fields[3], &token->created)) {
    return absl::StrCat("created: expects a time as in 2025-01-31T12:00:00Z, got ", fields[3]);
  }
  token->expires = absl::InfiniteFuture();
  if (fields[4] != kNever && !ReadTime(fields[4], &token->expires)) {
    return absl::StrCat("expires: expects a time as in 2025-01-31T12:00:00Z, or never, got ",
                        fields[4]);
  }
  return "";
}

// `temporary` becomes `path`, with this owner.
absl::Status Replace(const std::string& path, const std::string& text, uid_t uid, gid_t gid) {
  const std::string temporary = path + ".tmp";
  // What an editor that died has left: the lock is ours.
  if (unlink(temporary.c_str()) != 0 && errno != ENOENT) {
    return FileError("remove", temporary, errno);
  }
  Descriptor file(
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.is_open()) return FileError("create", temporary, errno);
  absl::Status status;
  if (fchmod(file.get(), 0600) != 0 || (geteuid() == 0 && fchown(file.get(), uid, gid) != 0)) {
    status = FileError("set the owner and mode of", temporary, errno);
  }
  const std::unique_ptr<WritableFile> writer = WriteThrough(temporary, file.Release());
  if (status.ok()) status = writer->Append(text.data(), static_cast<int64_t>(text.size()));
  if (status.ok()) status = writer->Sync();
  if (status.ok()) status = PosixFileSystem()->Rename(temporary, path);
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  return PosixFileSystem()->SyncDirectory(ParentDirectory(path));
}

}  // namespace

absl::StatusOr<NewToken> MakeToken(const std::string& user, absl::Time created,
                                   absl::Time expires) {
  NewToken token;
  MT_ASSIGN_OR_RETURN(token.stored.id, RandomHex(kIdBytes));
  MT_ASSIGN_OR_RETURN(const std::string secret, RandomHex(kSecretBytes));
  token.stored.hash = Sha256(secret);
  token.stored.user = user;
  token.stored.created = absl::FromUnixSeconds(absl::ToUnixSeconds(created));
  token.stored.expires = expires == absl::InfiniteFuture()
                             ? expires
                             : absl::FromUnixSeconds(absl::ToUnixSeconds(expires));
  token.text = absl::StrCat(kBearerTokenPrefix, token.stored.id, "_", secret);
  return token;
}

absl::StatusOr<TokenParts> ParseToken(std::string_view text) {
  absl::string_view rest = View(text);
  const std::vector<absl::string_view> parts = absl::StrSplit(rest, absl::MaxSplits('_', 2));
  if (!absl::StartsWith(rest, kBearerTokenPrefix) || parts.size() != 3 ||
      !IsHex(parts[1], kIdBytes) || !IsHex(parts[2], kSecretBytes)) {
    return absl::InvalidArgumentError("not a token of the form mt_ID_SECRET");
  }
  return TokenParts{std::string(parts[1]), Sha256(parts[2])};
}

absl::StatusOr<std::vector<StoredToken>> ParseTokenFile(std::string_view text,
                                                        const std::string& name) {
  std::vector<StoredToken> tokens;
  std::set<std::string> ids;
  int number = 0;
  for (const absl::string_view raw : absl::StrSplit(View(text), '\n')) {
    ++number;
    const absl::string_view line = absl::StripAsciiWhitespace(raw);
    if (line.empty() || line[0] == '#') continue;
    StoredToken token;
    std::string error = ParseLine(line, &token);
    if (error.empty() && !ids.insert(token.id).second) {
      error = absl::StrCat("the ID ", token.id, " is there twice");
    }
    if (!error.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(name, ":", number, ": ", error));
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

std::string TokenTimeText(absl::Time time) {
  if (time == absl::InfiniteFuture()) return kNever;
  return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone());
}

std::string FormatTokenFile(const std::vector<StoredToken>& tokens) {
  std::string text =
      "# Tokens of megatraind; `megatraind token add|ls|revoke` writes this file.\n"
      "# ID SHA256 USER CREATED EXPIRES\n";
  for (const StoredToken& token : tokens) {
    absl::StrAppend(&text, token.id, " ", absl::BytesToHexString(token.hash), " ", token.user, " ",
                    TokenTimeText(token.created), " ", TokenTimeText(token.expires), "\n");
  }
  return text;
}

absl::StatusOr<std::vector<StoredToken>> ReadTokenFile(const std::string& path, struct stat* info) {
  // O_NONBLOCK: a FIFO of that name does not hold us up.
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) return FileError("open", path, errno);
  struct stat found = {};
  if (fstat(file.get(), &found) != 0) return FileError("look at", path, errno);
  if (info != nullptr) *info = found;
  if (!S_ISREG(found.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  }
  if ((found.st_mode & 077) != 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: has mode %04o, and is for its owner's eyes alone: chmod 0600", path,
                        found.st_mode & 07777));
  }
  if (found.st_uid != geteuid() && found.st_uid != 0 && geteuid() != 0) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: belongs to user %d, who could make tokens for anyone", path, found.st_uid));
  }
  if (found.st_size > kFileBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is ", found.st_size, " bytes long; ", kFileBytesMax, " are allowed"));
  }
  std::string text(static_cast<size_t>(found.st_size), '\0');
  MT_ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> reader,
                      ReadThrough(path, file.Release()));
  MT_RETURN_IF_ERROR(reader->Read(0, text.data(), found.st_size));
  return ParseTokenFile(text, path);
}

absl::Status EditTokenFile(
    const std::string& path,
    const std::function<absl::Status(std::vector<StoredToken>* tokens)>& edit) {
  const std::string directory = ParentDirectory(path);
  const Descriptor lock(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock.is_open()) return FileError("open", directory, errno);
  if (flock(lock.get(), LOCK_EX) != 0) return FileError("lock", directory, errno);
  struct stat owner = {};
  if (fstat(lock.get(), &owner) != 0) return FileError("look at", directory, errno);
  std::vector<StoredToken> tokens;
  struct stat info = {};
  absl::StatusOr<std::vector<StoredToken>> read = ReadTokenFile(path, &info);
  if (read.ok()) {
    owner = info;
    tokens = *std::move(read);
  } else if (!absl::IsNotFound(read.status())) {
    return read.status();
  }
  MT_RETURN_IF_ERROR(edit(&tokens));
  return Replace(path, FormatTokenFile(tokens), owner.st_uid, owner.st_gid);
}

}  // namespace megatrain
