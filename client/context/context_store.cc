#include "client/context/context_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/connection/server_address.h"
#include "engine/base/status.h"

namespace megatrain::client {
namespace {

using Json = nlohmann::ordered_json;

absl::Status Invalid(const std::string& path, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": ", why, "; mend it, or remove it and make contexts with `megatrain context add`"));
}

// The keys of a context beside "server".
constexpr std::pair<const char*, std::string CredentialFiles::*> kFiles[] = {
    {"ca", &CredentialFiles::ca},
    {"certificate", &CredentialFiles::certificate},
    {"key", &CredentialFiles::key},
    {"token_file", &CredentialFiles::token},
};

absl::StatusOr<Context> ParseContext(const std::string& path, const std::string& name,
                                     const Json& json) {
  Context context;
  bool good = json.is_object() && json.contains("server");
  for (const auto& [key, value] : json.items()) {
    std::string* text = key == "server" ? &context.server : nullptr;
    for (const auto& [file, member] : kFiles) {
      if (key == file) text = &(context.files.*member);
    }
    good = good && text != nullptr && value.is_string();
    if (good) *text = value.get<std::string>();
  }
  if (good) return context;
  return Invalid(path, absl::StrCat("contexts.", name,
                                    ": expects {\"server\": \"ADDRESS\"} and at most the texts ca, "
                                    "certificate, key and token_file beside it"));
}

absl::Status CannotWrite(const std::string& path, int error) {
  return absl::InvalidArgumentError(absl::StrCat("cannot write ", path, ": ", strerror(error)));
}

bool IsName(const std::string& name) {
  return !name.empty() && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
         });
}

std::string Names(const Contexts& contexts) {
  return contexts.contexts.empty()
             ? "there are none"
             : absl::StrCat("there are ", absl::StrJoin(contexts.contexts, ", ",
                                                        [](std::string* out, const auto& entry) {
                                                          absl::StrAppend(out, entry.first);
                                                        }));
}

}  // namespace

absl::StatusOr<Contexts> ReadContexts(const std::string& path) {
  Contexts contexts;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    if (errno == ENOENT || errno == ENOTDIR) return contexts;
    return absl::InvalidArgumentError(absl::StrCat("cannot read ", path, ": ", strerror(errno)));
  }
  std::ostringstream text;
  text << file.rdbuf();
  const Json json = Json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Invalid(path, "is not a JSON object");
  for (const auto& [key, value] : json.items()) {
    if (key == "current" && value.is_string()) {
      contexts.current = value.get<std::string>();
    } else if (key == "contexts" && value.is_object()) {
      for (const auto& [name, context] : value.items()) {
        MT_ASSIGN_OR_RETURN(contexts.contexts[name], ParseContext(path, name, context));
      }
    } else {
      return Invalid(path, absl::StrCat(key,
                                        ": is not understood; expects a text \"current\" and "
                                        "an object \"contexts\""));
    }
  }
  if (!contexts.current.empty() && !contexts.contexts.contains(contexts.current)) {
    return Invalid(path, absl::StrCat("current: there is no context ", contexts.current));
  }
  return contexts;
}

absl::Status WriteContexts(const std::string& path, const Contexts& contexts) {
  Json json;
  json["current"] = contexts.current;
  json["contexts"] = Json::object();
  for (const auto& [name, context] : contexts.contexts) {
    Json& entry = json["contexts"][name];
    entry["server"] = context.server;
    for (const auto& [key, file] : kFiles) {
      const std::string& value = context.files.*file;
      if (!value.empty()) entry[key] = value;
    }
  }
  const std::string text =
      json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";

  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error) return CannotWrite(path, error.value());
  const std::string next = absl::StrCat(path, ".", getpid(), ".tmp");
  const int fd = open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return CannotWrite(path, errno);
  const ssize_t written = write(fd, text.data(), text.size());
  int failure = written < 0 ? errno : written != static_cast<ssize_t>(text.size()) ? ENOSPC : 0;
  if (failure == 0 && fsync(fd) != 0) failure = errno;
  close(fd);
  if (failure == 0 && rename(next.c_str(), path.c_str()) != 0) failure = errno;
  if (failure == 0) return absl::OkStatus();
  unlink(next.c_str());
  return CannotWrite(path, failure);
}

absl::Status AddContext(const std::string& name, const Context& context, Contexts* contexts) {
  if (!IsName(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", name, "\": expects a name of at most 64 letters, digits, and - _ ."));
  }
  MT_ASSIGN_OR_RETURN(const ServerAddress address, ParseServerAddress(context.server));
  if (address.local() && context.files != CredentialFiles()) {
    return absl::InvalidArgumentError(
        absl::StrCat(address.text,
                     ": the system tells who calls on a Unix socket; certificates and tokens are "
                     "for HOST:PORT"));
  }
  Context added{address.text, context.files};
  for (const auto& [key, file] : kFiles) {
    std::string& path = added.files.*file;
    std::error_code error;
    if (!path.empty()) path = std::filesystem::absolute(path, error).lexically_normal().string();
    if (error) return absl::InvalidArgumentError(absl::StrCat(key, ": ", error.message()));
  }
  MT_RETURN_IF_ERROR(ReadCredentials(added.files).status());
  const auto [found, is_new] = contexts->contexts.emplace(name, added);
  if (!is_new && found->second != added) {
    return absl::AlreadyExistsError(
        absl::StrCat("context ", name, " is there already, for ", found->second.server));
  }
  if (contexts->current.empty()) contexts->current = name;
  return absl::OkStatus();
}

absl::Status UseContext(const std::string& name, Contexts* contexts) {
  if (!contexts->contexts.contains(name)) {
    return absl::NotFoundError(absl::StrCat("there is no context ", name, "; ", Names(*contexts)));
  }
  contexts->current = name;
  return absl::OkStatus();
}

}  // namespace megatrain::client
