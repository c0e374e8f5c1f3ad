// The libraries of CUDA's toolkit and cuDNN, which are loaded at run time: they are hundreds of
// megabytes and come with the toolkit or with Python's packages, not with this program.
//
// Where they are looked for, in this order; what lies in an earlier place is taken:
//   1. by name, as the loader looks: LD_LIBRARY_PATH, the system's own list (ldconfig);
//   2. the toolkit's directories: /usr/local/cuda, /usr/local/cuda-13*, the newest first, and
//      /usr/local/nvidia;
//   3. the packages nvidia-* of Python: of $VIRTUAL_ENV, of the python3 on PATH, of /usr/local, of
//      /usr, and the user's own. No Python is run.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_SHARED_LIBRARY_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_SHARED_LIBRARY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace megatrain {

struct SharedLibrary {
  // For dlsym. Never closed: the library's threads and the driver's outlive what we know of.
  void* handle = nullptr;
  std::string path;  // the file
  // Of the places before it those where the library lies and cannot be loaded, with the loader's
  // words.
  std::vector<std::string> failures;

  // "/usr/local/cuda/lib64/libcublasLt.so.13", and the failures.
  std::string Describe() const;
};

// What the places depend on. A path is a directory's, or empty: there is none.
struct LibraryEnvironment {
  std::string root = "";         // before every absolute path, for tests
  std::string virtual_env = "";  // $VIRTUAL_ENV
  std::string path = "";         // $PATH
  std::string home = "";         // $HOME

  static LibraryEnvironment OfThisProcess();
};

// Places 2 and 3: patterns of glob(3), each of which may mean several directories, or none.
std::vector<std::string> LibraryPlaces(const LibraryEnvironment& environment);

// The files that a name, which may be a pattern, has in these places, in their order; of one
// pattern the last one in the alphabet first.
std::vector<std::string> FindLibraryFiles(const std::string& name,
                                          const std::vector<std::string>& places);

// Opens the library `name`, as "libcudnn.so.9". Unavailable: every place that was looked at and,
// where the library lies in one, why it cannot be loaded.
absl::StatusOr<SharedLibrary> OpenSharedLibrary(const std::string& name,
                                                const std::vector<std::string>& places);
// In the places of this process.
absl::StatusOr<SharedLibrary> OpenSharedLibrary(const std::string& name);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_SHARED_LIBRARY_H_
