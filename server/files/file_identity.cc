#include "server/files/file_identity.h"

#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status.h"

namespace megatrain {
namespace {

constexpr size_t kEntryBytesMax = size_t{1} << 20;

// Groups and capabilities are read and set by bare system calls, which concern the calling thread:
// the C library's setgroups changes all threads.

constexpr uint64_t Bit(int capability) { return uint64_t{1} << capability; }
constexpr uint64_t kOverrides = Bit(CAP_DAC_OVERRIDE) | Bit(CAP_DAC_READ_SEARCH) | Bit(CAP_FOWNER);

struct Capabilities {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};

  bool Read() { return ::syscall(SYS_capget, &header, data) == 0; }
  bool Write() { return ::syscall(SYS_capset, &header, data) == 0; }
  uint64_t effective() const { return data[0].effective | uint64_t{data[1].effective} << 32; }
  void set_effective(uint64_t bits) {
    data[0].effective = static_cast<uint32_t>(bits);
    data[1].effective = static_cast<uint32_t>(bits >> 32);
  }
};

uint64_t EffectiveCapabilities() {
  Capabilities capabilities;
  return capabilities.Read() ? capabilities.effective() : 0;
}

// To exactly these, as far as they are permitted.
bool SetEffectiveCapabilities(uint64_t bits) {
  Capabilities capabilities;
  if (!capabilities.Read()) return false;
  if (capabilities.effective() == bits) return true;
  capabilities.set_effective(bits);
  return capabilities.Write();
}

// Whether Write would be refused, as by a system call filter.
bool MaySetCapabilities() {
  Capabilities capabilities;
  return capabilities.Read() && capabilities.Write();
}

bool ReadGroups(std::vector<gid_t>* groups) {
  const long count = ::syscall(SYS_getgroups, 0, nullptr);
  if (count < 0) return false;
  groups->resize(static_cast<size_t>(count));
  return ::syscall(SYS_getgroups, count, groups->data()) == count;
}

bool SetGroups(const std::vector<gid_t>& groups) {
  return ::syscall(SYS_setgroups, groups.size(), groups.data()) == 0;
}

// These calls return what was set before, whether or not they succeed; an id that cannot be set
// asks.
bool SetFileUser(uid_t uid) {
  ::setfsuid(uid);
  return static_cast<uid_t>(::setfsuid(std::numeric_limits<uid_t>::max())) == uid;
}

bool SetFileGroup(gid_t gid) {
  ::setfsgid(gid);
  return static_cast<gid_t>(::setfsgid(std::numeric_limits<gid_t>::max())) == gid;
}

}  // namespace

absl::StatusOr<FileIdentity> LookUpIdentity(int64_t uid) {
  const auto gone = [uid] {
    return absl::NotFoundError(absl::StrCat("there is no account of user id ", uid,
                                            " on this machine (any more); nothing can be read or "
                                            "written for it"));
  };
  if (uid < 0 || uid >= std::numeric_limits<uid_t>::max()) return gone();
  std::vector<char> buffer(1024);
  passwd entry;
  passwd* found = nullptr;
  int error = 0;
  while ((error = ::getpwuid_r(static_cast<uid_t>(uid), &entry, buffer.data(), buffer.size(),
                               &found)) == ERANGE &&
         buffer.size() < kEntryBytesMax) {
    buffer.resize(2 * buffer.size());
  }
  if (error != 0 && error != ENOENT && error != ESRCH) {
    return absl::UnavailableError(absl::StrCat("the account of user id ", uid,
                                               " cannot be looked up: ", std::strerror(error)));
  }
  if (found == nullptr) return gone();
  FileIdentity identity;
  identity.user = entry.pw_name;
  identity.uid = entry.pw_uid;
  identity.gid = entry.pw_gid;
  int count = 32, room = 0;
  do {
    if (count <= room) {
      return absl::UnavailableError(
          absl::StrCat("the groups of user id ", uid, " cannot be looked up"));
    }
    room = count;
    identity.groups.resize(static_cast<size_t>(room));
  } while (::getgrouplist(entry.pw_name, entry.pw_gid, identity.groups.data(), &count) < 0);
  identity.groups.resize(static_cast<size_t>(count));
  return identity;
}

std::string MissingCapabilities() {
  const uint64_t effective = EffectiveCapabilities();
  std::vector<std::string> missing;
  for (const auto& [capability, name] :
       {std::pair{CAP_SETUID, "CAP_SETUID"}, std::pair{CAP_SETGID, "CAP_SETGID"},
        std::pair{CAP_CHOWN, "CAP_CHOWN"}}) {
    if ((effective & Bit(capability)) == 0) missing.push_back(name);
  }
  return absl::StrJoin(missing, ", ");
}

ScopedIdentity::ScopedIdentity(const FileIdentity* identity) {
  if (identity == nullptr) return;
  status_ = Assume(*identity);
  if (!status_.ok()) Restore();
}

ScopedIdentity::~ScopedIdentity() { Restore(); }

absl::Status ScopedIdentity::Assume(const FileIdentity& identity) {
  const auto denied = [&identity](const char* what) {
    return absl::PermissionDeniedError(
        absl::StrCat("the daemon cannot act for ", identity.user, ": ", what,
                     " is refused to it (it needs CAP_SETUID, CAP_SETGID, and the system calls "
                     "setfsuid, setfsgid, setgroups and capset)"));
  };
  if (!ReadGroups(&own_groups_)) return denied("reading its groups");
  own_capabilities_ = EffectiveCapabilities();
  own_uid_ = static_cast<uid_t>(::setfsuid(std::numeric_limits<uid_t>::max()));
  own_gid_ = static_cast<gid_t>(::setfsgid(std::numeric_limits<gid_t>::max()));
  // A thread that ceases to be uid 0 loses its capabilities over files, which have to be set again.
  if (identity.uid == 0 && own_uid_ != 0 && !MaySetCapabilities()) {
    return denied("setting capabilities");
  }
  assumed_ = true;
  if (!SetGroups(identity.groups)) return denied("setting groups");
  if (!SetFileGroup(identity.gid)) return denied("setting the group of files");
  if (!SetFileUser(identity.uid)) return denied("setting the user of files");
  if (!SetEffectiveCapabilities(EffectiveCapabilities() & ~kOverrides)) {
    return denied("laying capabilities down");
  }
  return absl::OkStatus();
}

void ScopedIdentity::Restore() {
  if (!std::exchange(assumed_, false)) return;
  std::vector<gid_t> groups;
  // Groups that were never changed need not be set, which a process without the right could not.
  const bool restored = SetFileUser(own_uid_) && SetFileGroup(own_gid_) &&
                        SetEffectiveCapabilities(own_capabilities_) && ReadGroups(&groups) &&
                        (groups == own_groups_ || SetGroups(own_groups_));
  if (restored) return;
  // To go on would be to keep the daemon's own files in a user's name.
  std::fputs("megatraind: a thread cannot take its own identity back; ending the process\n",
             stderr);
  std::abort();
}

}  // namespace megatrain
