#include "engine/comm/mpi/mpi_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace megatrain {

std::string MpiLibraryPath() {
  if (const char* const named = std::getenv("MEGATRAIN_MPI"); named != nullptr) return named;
  constexpr char kName[] = "libmegatrain-mpi.so";
  std::error_code error;
  const std::filesystem::path place =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const std::filesystem::path packaged = place / "../lib/megatrain" / kName;
  return std::filesystem::exists(packaged, error) ? packaged : place / kName;
}

absl::StatusOr<void*> MpiLibraryFunction(const std::string& path, const char* name) {
  if (access(path.c_str(), F_OK) != 0) {
    return absl::UnimplementedError(absl::StrCat(
        "a job on several processes needs MPI, which this installation was built without (there is "
        "no library ",
        path, "); run deploy/install-deps.sh --mpi and build again"));
  }
  // It is never closed: MPI's own threads may outlive everything here.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("a job on several processes needs MPI, which cannot be loaded; install it, "
                     "on Debian 12 as the package openmpi-bin: ",
                     dlerror()));
  }
  return dlsym(library, name);
}

}  // namespace megatrain
