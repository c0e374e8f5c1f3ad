#include "server/identity/tls_file_watch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"

namespace megatrain {

absl::StatusOr<std::unique_ptr<TlsFileWatch>> TlsFileWatch::Open(const TlsPaths& paths,
                                                                 Options options) {
  std::unique_ptr<TlsFileWatch> watch(new TlsFileWatch(paths, std::move(options)));
  MutexLock lock(&watch->mutex_);
  watch->looked_ = watch->options_.now();
  MT_RETURN_IF_ERROR(watch->Read(paths));
  return watch;
}

TlsFileWatch::Looks TlsFileWatch::Look(const TlsPaths& paths) const {
  Looks looks = {LookAt(paths.certificate), LookAt(paths.key), std::nullopt};
  if (!paths.client_ca.empty()) looks[2] = LookAt(paths.client_ca);
  return looks;
}

absl::Status TlsFileWatch::Read(const TlsPaths& paths) {
  // Before they are read: what is changed meanwhile is seen at the next look.
  const Looks looks = Look(paths);
  MT_ASSIGN_OR_RETURN(TlsFiles files, ReadTlsFiles(paths, options_.now()));
  for (const std::string& warning : files.warnings) options_.log(warning);
  good_ = std::make_shared<const TlsFiles>(std::move(files));
  looks_ = looks;
  return absl::OkStatus();
}

absl::Status TlsFileWatch::Reload(const TlsPaths& paths) {
  MutexLock lock(&mutex_);
  MT_RETURN_IF_ERROR(Read(paths));
  paths_ = paths;
  looked_ = options_.now();
  problem_ = absl::OkStatus();
  told_ = false;
  return absl::OkStatus();
}

std::shared_ptr<const TlsFiles> TlsFileWatch::Current() {
  MutexLock lock(&mutex_);
  const absl::Time now = options_.now();
  // A clock that was set back must not keep an old certificate.
  if (now >= looked_ && now < looked_ + kLookInterval) return good_;
  looked_ = now;
  // While there is a problem the files are read at every look.
  if (problem_.ok() && Look(paths_) == looks_) return good_;
  const absl::Status status = Read(paths_);
  if (status.ok()) {
    options_.log(absl::StrCat("tls: the files were read again; the certificate in ",
                              paths_.certificate, " is good until ",
                              absl::FormatTime("%Y-%m-%d", good_->expires, absl::UTCTimeZone())));
    told_ = false;
  } else if (status != problem_) {
    told_ = false;
  } else if (!told_) {
    options_.log(absl::StrCat(status.message(), "; TLS is served with the files read before"));
    told_ = true;
  }
  problem_ = status;
  return good_;
}

}  // namespace megatrain
