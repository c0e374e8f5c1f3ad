// Finds and loads NVIDIA's libraries at run time: those of the driver, of CUDA's toolkit, cuDNN and
// NCCL. They have hundreds of megabytes and come with the driver, with the toolkit or with Python
// packages, not with this program.
//
// Places are searched in the following order. The first library that can be loaded and suits the
// caller (LibrarySuits) is taken.
//   1. by name, as the loader searches: LD_LIBRARY_PATH, the system's own list (ldconfig);
//   2. the toolkit's directories: /usr/local/cuda, /usr/local/cuda-13* (newer versions first) and
//      /usr/local/nvidia;
//   3. the Python packages nvidia-* of $VIRTUAL_ENV, of the python3 on PATH, of /usr/local, of
//      /usr, and of the user ($HOME/.local). No Python is run.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_SHARED_LIBRARY_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_SHARED_LIBRARY_H_

#include <dlfcn.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace megatrain {

// A library that is loaded.
struct SharedLibrary {
  // The handle for dlsym. It is never closed once the library is taken, because threads of the
  // library and of the driver may run until the process ends.
  void* handle = nullptr;
  std::string path;  // the path of the library's file
  // The reasons why libraries in earlier places were not taken: the loader's messages, and the
  // messages of LibrarySuits.
  std::vector<std::string> failures;

  // Returns `path`, followed by "; passed over: " and the failures if there are any.
  std::string Describe() const;
};

// Finds functions in a library, and remembers the first one that the library does not have.
class FunctionFinder {
 public:
  // `library` is SharedLibrary::handle.
  explicit FunctionFinder(void* library) : library_(library) {}

  // Sets `function` to the library's function `name`, or to null if there is none. `name` must
  // outlive this object. REQUIRES: `Function` is the type of the library's function.
  template <typename Function>
  void operator()(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function == nullptr && missing_ == nullptr) missing_ = name;
  }
  // Returns the name of the first function that was not found, or null if all were found.
  const char* missing() const { return missing_; }

 private:
  void* const library_;
  const char* missing_ = nullptr;
};

// The settings on which the places depend. An empty one is not used.
struct LibraryEnvironment {
  std::string root = "";         // a prefix of all places, for tests
  std::string virtual_env = "";  // $VIRTUAL_ENV
  std::string path = "";         // $PATH
  std::string home = "";         // $HOME

  // Returns the environment variables of this process, and no root.
  static LibraryEnvironment OfThisProcess();
};

// Returns places 2 and 3 of the list above as patterns of glob(3), with braces. Each may match any
// number of directories.
std::vector<std::string> LibraryPlaces(const LibraryEnvironment& environment);

// Returns the files in `places` (patterns of directories) that match `name`, which may be a
// pattern, in the order of the places. Among the matches of one place, newer versions come first:
// cuda-13.10 before cuda-13.9. No path comes twice, but links to one file are separate paths.
std::vector<std::string> FindLibraryFiles(const std::string& name,
                                          const std::vector<std::string>& places);

// Returns the version in the name of the file `path`, after links are followed: {9, 14, 0} if
// libcudnn.so.9 is a link to libcudnn.so.9.14.0. Returns nullopt if the name has fewer than three
// numbers after ".so.", as in Python's packages, or if there is no such file.
std::optional<std::array<int, 3>> VersionInName(const std::string& path);

// Returns OK if `library` can be used, else an error whose message names the library's file and
// what is wrong with it, such as its version. After an error the library is closed, and the
// libraries in later places are tried.
using LibrarySuits = std::function<absl::Status(const SharedLibrary& library)>;

// Opens the library `name`, such as "libcudnn.so.9", by name or else from `places`. If `suits` is
// null, every library suits. Returns Unavailable if no library is taken. The message then has the
// places that were searched, the loader's messages and those of `suits`.
absl::StatusOr<SharedLibrary> OpenSharedLibrary(const std::string& name,
                                                const std::vector<std::string>& places,
                                                const LibrarySuits& suits = nullptr);
// Does the same with the places of this process.
absl::StatusOr<SharedLibrary> OpenSharedLibrary(const std::string& name,
                                                const LibrarySuits& suits = nullptr);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_SHARED_LIBRARY_H_
