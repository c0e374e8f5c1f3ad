// Finds and loads the driver's library and those of CUDA's toolkit, cuDNN and NCCL at run time. The
// latter have hundreds of megabytes and come with the toolkit or with Python packages, not with
// this program.
//
// The places are searched in this order, and the first library that can be loaded and suits the
// caller (LibrarySuits) is taken:
//   1. by name, as the loader searches: LD_LIBRARY_PATH, the system's own list (ldconfig);
//   2. the toolkit's directories: /usr/local/cuda, /usr/local/cuda-13* (the last name first) and
//      /usr/local/nvidia;
//   3. the Python packages nvidia-* of $VIRTUAL_ENV, of the python3 on PATH, of /usr/local, of
//      /usr, and of the user. No Python is run.
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

struct SharedLibrary {
  // The handle for dlsym. That of a library that is taken is never closed, because the threads of
  // the library and of the driver may outlive everything here.
  void* handle = nullptr;
  std::string path;  // the library's file
  // Why libraries in earlier places were not taken: the loader's messages, and what did not suit.
  std::vector<std::string> failures;

  // Returns "/usr/local/cuda/lib64/libcublasLt.so.13", followed by the failures if there are any.
  std::string Describe() const;
};

// Finds functions of a library, and remembers the first that it does not have.
class FunctionFinder {
 public:
  explicit FunctionFinder(void* library) : library_(library) {}

  // Sets `function` to the one of this name, or to null.
  template <typename Function>
  void operator()(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function == nullptr && missing_ == nullptr) missing_ = name;
  }
  const char* missing() const { return missing_; }  // a name, or null

 private:
  void* const library_;
  const char* missing_ = nullptr;
};

// The settings on which the places depend. Paths are directories; an empty one is not used.
struct LibraryEnvironment {
  std::string root = "";         // prefix of every absolute path, for tests
  std::string virtual_env = "";  // $VIRTUAL_ENV
  std::string path = "";         // $PATH
  std::string home = "";         // $HOME

  // Reads the environment variables of this process.
  static LibraryEnvironment OfThisProcess();
};

// Returns places 2 and 3 as patterns of glob(3), each of which may match any number of directories.
std::vector<std::string> LibraryPlaces(const LibraryEnvironment& environment);

// Returns the files in `places` that match `name`, which may be a pattern, in the order of the
// places. Within a pattern newer versions come first: cuda-13.10 before cuda-13.9.
std::vector<std::string> FindLibraryFiles(const std::string& name,
                                          const std::vector<std::string>& places);

// Returns the version in the name of the library's file, links followed: {9, 14, 0} of
// libcudnn.so.9 -> libcudnn.so.9.14.0. Returns nullopt if the name has fewer than three numbers, as
// in Python's packages, or there is no such file.
std::optional<std::array<int, 3>> VersionInName(const std::string& path);

// Returns OK if a library can be used, else an error whose message names its file and what is wrong
// with it, such as its version. After an error the library is closed, and those of later places are
// tried.
using LibrarySuits = std::function<absl::Status(const SharedLibrary& library)>;

// Opens the library `name`, such as "libcudnn.so.9", by name or from `places`. `suits` may be null:
// every library suits. Returns Unavailable, with the places that were searched, the loader's
// messages and what did not suit, if none is taken.
absl::StatusOr<SharedLibrary> OpenSharedLibrary(const std::string& name,
                                                const std::vector<std::string>& places,
                                                const LibrarySuits& suits = nullptr);
// Opens the library `name` by name or from the places of this process, with the same errors.
absl::StatusOr<SharedLibrary> OpenSharedLibrary(const std::string& name,
                                                const LibrarySuits& suits = nullptr);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_SHARED_LIBRARY_H_
