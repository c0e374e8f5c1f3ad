#include "engine/device/cuda/libraries/shared_library.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <string.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace megatrain {
namespace {

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

// The first python3 on the path, empty if there is none.
std::filesystem::path FindPython(const LibraryEnvironment& environment) {
  for (const absl::string_view directory :
       absl::StrSplit(environment.path, ':', absl::SkipEmpty())) {
    const std::filesystem::path python =
        std::filesystem::path(absl::StrCat(environment.root, directory)) / "python3";
    std::error_code error;
    if (std::filesystem::exists(python, error)) return python;
  }
  return {};
}

// Null if it cannot be opened; `why` is the loader's words.
void* Open(const std::string& name, std::string* why) {
  void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) *why = dlerror();
  return handle;
}

SharedLibrary Opened(void* handle, const std::string& name) {
  const link_map* map = nullptr;
  const bool known = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] != '\0';
  return {handle, known ? map->l_name : name, {}};
}

}  // namespace

std::string SharedLibrary::Describe() const {
  if (failures.empty()) return path;
  return absl::StrCat(path, "; passed over: ", absl::StrJoin(failures, "; "));
}

LibraryEnvironment LibraryEnvironment::OfThisProcess() {
  return {.virtual_env = Environment("VIRTUAL_ENV"),
          .path = Environment("PATH"),
          .home = Environment("HOME")};
}

std::vector<std::string> LibraryPlaces(const LibraryEnvironment& environment) {
  std::vector<std::string> places;
  const auto add = [&](const std::string& place) {
    if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(place);
  };
  for (const char* toolkit : {"cuda", "cuda-13*", "nvidia"}) {
    for (const char* part : {"lib64", "lib"}) {
      add(absl::StrCat(environment.root, "/usr/local/", toolkit, "/", part));
    }
  }
  const auto add_python = [&](const std::string& prefix) {
    add(absl::StrCat(prefix, "/lib/python3*/{site,dist}-packages/nvidia/*/lib"));
  };
  const auto add_python_under_root = [&](const std::string& prefix) {
    if (!prefix.empty()) add_python(absl::StrCat(environment.root, prefix));
  };
  add_python_under_root(environment.virtual_env);
  if (const std::filesystem::path python = FindPython(environment); !python.empty()) {
    add_python(python.parent_path().parent_path());
    std::error_code error;
    const std::filesystem::path meant = std::filesystem::canonical(python, error);
    if (!error) add_python(meant.parent_path().parent_path());
  }
  add_python_under_root("/usr/local");
  add_python_under_root("/usr");
  if (!environment.home.empty()) add_python_under_root(environment.home + "/.local");
  return places;
}

std::optional<std::array<int, 3>> VersionInName(const std::string& path) {
  std::error_code error;
  const std::string name = std::filesystem::canonical(path, error).filename();
  const size_t suffix = name.find(".so.");
  std::array<int, 3> version = {};
  if (error || suffix == std::string::npos ||
      std::sscanf(name.c_str() + suffix, ".so.%4d.%4d.%4d", &version[0], &version[1],
                  &version[2]) != 3) {
    return std::nullopt;
  }
  return version;
}

std::vector<std::string> FindLibraryFiles(const std::string& name,
                                          const std::vector<std::string>& places) {
  std::vector<std::string> files;
  for (const std::string& place : places) {
    glob_t found = {};
    if (glob(absl::StrCat(place, "/", name).c_str(), GLOB_BRACE, nullptr, &found) == 0) {
      std::vector<std::string> here(found.gl_pathv, found.gl_pathv + found.gl_pathc);
      std::sort(here.begin(), here.end(), [](const std::string& a, const std::string& b) {
        return strverscmp(a.c_str(), b.c_str()) > 0;
      });
      for (const std::string& file : here) {
        if (std::find(files.begin(), files.end(), file) == files.end()) files.push_back(file);
      }
    }
    globfree(&found);
  }
  return files;
}

absl::StatusOr<SharedLibrary> OpenSharedLibrary(const std::string& name,
                                                const std::vector<std::string>& places,
                                                const LibrarySuits& suits) {
  std::vector<std::string> failures;
  // Has no handle if the library is not taken: `why` says why.
  const auto take = [&](const std::string& file, std::string* why) -> SharedLibrary {
    void* const handle = Open(file, why);
    if (handle == nullptr) return {};
    SharedLibrary library = Opened(handle, file);
    const absl::Status status = suits != nullptr ? suits(library) : absl::OkStatus();
    if (status.ok()) {
      library.failures = failures;
      return library;
    }
    *why = std::string(status.message());
    dlclose(handle);
    return {};
  };
  std::string why;
  if (SharedLibrary library = take(name, &why); library.handle != nullptr) return library;
  // The loader's words where it does not find the library itself; one that it needs has another
  // name.
  if (!absl::StartsWith(why,
                        absl::StrCat(name, ": cannot open shared object file: No such file"))) {
    failures.push_back(absl::StrCat("by its name: ", why));
  }
  for (const std::string& file : FindLibraryFiles(name, places)) {
    if (SharedLibrary library = take(file, &why); library.handle != nullptr) return library;
    failures.push_back(why);  // which names the file
  }
  return absl::UnavailableError(absl::StrCat(
      name, failures.empty() ? " is not found" : " cannot be used: ", absl::StrJoin(failures, "; "),
      "; looked for by its name (LD_LIBRARY_PATH, ldconfig) and in ", absl::StrJoin(places, ", ")));
}

absl::StatusOr<SharedLibrary> OpenSharedLibrary(const std::string& name,
                                                const LibrarySuits& suits) {
  return OpenSharedLibrary(name, LibraryPlaces(LibraryEnvironment::OfThisProcess()), suits);
}

}  // namespace megatrain
