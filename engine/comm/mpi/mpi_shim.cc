#include "engine/comm/mpi/mpi_shim.h"

#include <dlfcn.h>
#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace {

// Handles are pointers in some MPIs and integers in others.
template <typename T>
MegatrainMpiHandle ToHandle(T value) {
  static_assert(sizeof(T) <= sizeof(MegatrainMpiHandle));
  MegatrainMpiHandle handle = 0;
  memcpy(&handle, &value, sizeof(T));
  return handle;
}
template <typename T>
T FromHandle(MegatrainMpiHandle handle) {
  T value;
  memcpy(&value, &handle, sizeof(T));
  return value;
}

void Copy(const char* from, char* text, int bytes) {
  strncpy(text, from, static_cast<size_t>(bytes));
  text[bytes - 1] = '\0';
}

void DescribeLibrary(char* text, int bytes) {
  char library[MPI_MAX_LIBRARY_VERSION_STRING];
  int size = 0;
  if (MPI_Get_library_version(library, &size) != MPI_SUCCESS) size = 0;
  library[size] = '\0';
  Copy(library, text, bytes);
}

void Describe(int error, char* text, int bytes) {
  char words[MPI_MAX_ERROR_STRING];
  int size = 0;
  if (MPI_Error_string(error, words, &size) != MPI_SUCCESS) size = 0;
  words[size] = '\0';
  Copy(words, text, bytes);
}

// pmix_info_t of PMIx 2 to 5 with a bool as its value, and the values of pmix_common.h. MPI's own
// headers bring none of it.
struct PmixFlag {
  char key[512];
  uint32_t flags;
  alignas(8) uint16_t type;
  alignas(8) bool value;
  char rest[31];  // of the union
};
static_assert(offsetof(PmixFlag, type) == 520 && offsetof(PmixFlag, value) == 528);
constexpr uint16_t kPmixBool = 1;
constexpr int kPmixSuccess = 0;

// Waits until all processes have come here, and so out of MPI_Init. Messages need this: Open MPI's
// receiver of TCP calls a null pointer for one that comes while it starts. MPI_Init ends with a
// barrier of PMIx to prevent that, but Slurm's "tree" of a job on fewer nodes than TreeWidth, as in
// 22.05 and 25.05, waits for the processes of the same node only. Slurm chooses its "ring", which
// waits for all, where data are to be collected. An MPI with a PMIx of its own is not helped.
int MeetAfterInitialize() {
  void* const pmix = dlopen("libpmix.so.2", RTLD_NOW | RTLD_NOLOAD);
  if (pmix == nullptr) return MPI_SUCCESS;
  using Fence = int (*)(const void* processes, size_t count, const PmixFlag* info, size_t infos);
  const auto fence = reinterpret_cast<Fence>(dlsym(pmix, "PMIx_Fence"));
  // Another PMIx may have started MPI, though this one is loaded.
  const auto initialized = reinterpret_cast<int (*)()>(dlsym(pmix, "PMIx_Initialized"));
  const PmixFlag collect = {"pmix.collect", 0, kPmixBool, true, {}};
  const bool usable = fence != nullptr && initialized != nullptr && initialized() != 0;
  const bool met = !usable || fence(nullptr, 0, &collect, 1) == kPmixSuccess;
  dlclose(pmix);
  return met ? MPI_SUCCESS : MEGATRAIN_MPI_NOT_MET;
}

int Initialize(int* rank, int* ranks) {
  int initialized = 0, provided = 0;
  int error = MPI_Initialized(&initialized);
  if (error != MPI_SUCCESS) return error;
  if (initialized) return MEGATRAIN_MPI_USED;
  // Open MPI reads these, and counts its header. A user's own settings stay.
  char eager[32];
  snprintf(eager, sizeof(eager), "%d", MEGATRAIN_MPI_EAGER_BYTES + 4096);
  if (setenv("OMPI_MCA_btl_tcp_eager_limit", eager, /*overwrite=*/0) != 0) return MPI_ERR_NO_MEM;
  // After a connection broke in a send, Open MPI 4.1 waits for its closed descriptor, and the next
  // send to that rank opens the same number again. poll(2), its default, accepts the first wait;
  // the second makes a circle of libevent's list, round which a call of MPI runs for ever. epoll(7)
  // refuses the first.
  if (setenv("OMPI_MCA_opal_event_include", "epoll", /*overwrite=*/0) != 0) return MPI_ERR_NO_MEM;
  error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  if (error != MPI_SUCCESS) return error;
  if (provided < MPI_THREAD_MULTIPLE) return MEGATRAIN_MPI_SINGLE_THREADED;
  // Errors that belong to no communicator go to the handlers of these two. Theirs end the process.
  error = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (error != MPI_SUCCESS) return error;
  error = MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  if (error != MPI_SUCCESS) return error;
  if ((error = MPI_Comm_rank(MPI_COMM_WORLD, rank)) != MPI_SUCCESS) return error;
  if ((error = MPI_Comm_size(MPI_COMM_WORLD, ranks)) != MPI_SUCCESS) return error;
  return *ranks > 1 ? MeetAfterInitialize() : MPI_SUCCESS;
}

int Finalize() { return MPI_Finalize(); }

int CreateCommunicator(MegatrainMpiHandle* communicator) {
  MPI_Comm made;
  const int error = MPI_Comm_dup(MPI_COMM_WORLD, &made);
  if (error != MPI_SUCCESS) return error;
  *communicator = ToHandle(made);
  return MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
}

int Send(MegatrainMpiHandle communicator, const void* data, int bytes, int peer, int tag,
         MegatrainMpiHandle* request) {
  MPI_Request made;
  const int error =
      MPI_Isend(data, bytes, MPI_BYTE, peer, tag, FromHandle<MPI_Comm>(communicator), &made);
  if (error == MPI_SUCCESS) *request = ToHandle(made);
  return error;
}

int Receive(MegatrainMpiHandle communicator, void* data, int bytes, int peer, int tag,
            MegatrainMpiHandle* request) {
  MPI_Request made;
  const int error =
      MPI_Irecv(data, bytes, MPI_BYTE, peer == MEGATRAIN_MPI_ANY_RANK ? MPI_ANY_SOURCE : peer, tag,
                FromHandle<MPI_Comm>(communicator), &made);
  if (error == MPI_SUCCESS) *request = ToHandle(made);
  return error;
}

int Test(MegatrainMpiHandle* request, int* done) {
  MPI_Request tested = FromHandle<MPI_Request>(*request);
  const int error = MPI_Test(&tested, done, MPI_STATUS_IGNORE);
  *request = ToHandle(tested);
  return error;
}

int Cancel(MegatrainMpiHandle* request) {
  MPI_Request cancelled = FromHandle<MPI_Request>(*request);
  const int error = MPI_Cancel(&cancelled);
  *request = ToHandle(cancelled);
  return error;
}

constexpr MegatrainMpi kFunctions = {
    MEGATRAIN_MPI_VERSION,
    DescribeLibrary,
    Describe,
    Initialize,
    Finalize,
    CreateCommunicator,
    Send,
    Receive,
    Test,
    Cancel,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const MegatrainMpi* megatrain_mpi(void) {
  return &kFunctions;
}
