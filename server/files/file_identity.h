// Lets a thread reach files with the rights of another account.
#ifndef MEGATRAIN_SERVER_FILES_FILE_IDENTITY_H_
#define MEGATRAIN_SERVER_FILES_FILE_IDENTITY_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

// An account with its groups, as the kernel compares it with a file's owner and mode.
struct FileIdentity {
  std::string user;
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  // `gid` too
};

// Returns the account with all its groups. Reads the machine's account database, which may wait for
// a directory service. Returns NotFound if there is no such account, and Unavailable if the
// database cannot be read.
absl::StatusOr<FileIdentity> LookUpIdentity(int64_t uid);

// Returns the capabilities that this thread lacks to act for other accounts, as in "CAP_SETUID,
// CAP_SETGID"; "" if it lacks none.
std::string MissingCapabilities();

// ScopedIdentity gives the calling thread the rights of another account while the object lives. The
// kernel then checks the thread's file accesses against that account, access lists included, and
// what the thread makes belongs to the account. The thread also gives up its capabilities to
// override file permissions. An account of uid 0 thus reaches what the permissions of files allow
// root and its groups, and no more. Other threads, and descriptors that are open already, keep
// their rights.
//
// While the object lives, the thread may only make system calls on the account's files. Other work
// would be done with the wrong rights. The object must be destroyed on the thread that made it. The
// process aborts if the thread's own identity cannot be restored.
class ScopedIdentity {
 public:
  // Assumes `identity`, which is used during the call only. If `identity` is null, the thread keeps
  // its own rights.
  explicit ScopedIdentity(const FileIdentity* identity);
  ~ScopedIdentity();
  ScopedIdentity(const ScopedIdentity&) = delete;
  ScopedIdentity& operator=(const ScopedIdentity&) = delete;

  // Returns OK if the identity was assumed or is null. Returns PermissionDenied if the process may
  // not act for others; the thread then keeps its own identity.
  const absl::Status& status() const { return status_; }

 private:
  absl::Status Assume(const FileIdentity& identity);
  void Restore();

  absl::Status status_;
  bool assumed_ = false;
  uid_t own_uid_ = 0;
  gid_t own_gid_ = 0;
  std::vector<gid_t> own_groups_;
  uint64_t own_capabilities_ = 0;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_FILES_FILE_IDENTITY_H_
