// The libraries of CUDA's toolkit that are loaded at run time: they are hundreds of megabytes and
// come with the toolkit or with PyTorch, not with this program.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_SHARED_LIBRARY_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_SHARED_LIBRARY_H_

#include <dlfcn.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace megatrain {

// A handle for dlsym. By the loader's rules first (LD_LIBRARY_PATH, the program's own directory),
// then in the toolkit's usual place. Never closed: its threads and the driver's outlive what we
// know of. Unavailable: the loader's words.
inline absl::StatusOr<void*> OpenSharedLibrary(const char* name) {
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const std::string why = dlerror();
  library = dlopen(absl::StrCat("/usr/local/cuda/lib64/", name).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  return absl::UnavailableError(absl::StrCat(name, " is not found (", why, ")"));
}

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_SHARED_LIBRARY_H_
