// Loads libmegatrain-mpi.so, which alone links MPI and PMIx.
#ifndef MEGATRAIN_ENGINE_COMM_MPI_MPI_LIBRARY_H_
#define MEGATRAIN_ENGINE_COMM_MPI_MPI_LIBRARY_H_

#include <string>

#include "absl/status/statusor.h"

namespace megatrain {

// Returns the library's path: $MEGATRAIN_MPI if that is set; else that in ../lib/megatrain, seen
// from the program's directory, if it lies there; else that in the program's directory itself.
std::string MpiLibraryPath();

// Returns the address of the C function `name` of the library `path`, or null if the library has no
// such function. The library stays loaded until the process ends. Returns Unimplemented if there is
// no file `path`, and Unavailable if it or what it links cannot be loaded.
absl::StatusOr<void*> MpiLibraryFunction(const std::string& path, const char* name);

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_COMM_MPI_MPI_LIBRARY_H_
