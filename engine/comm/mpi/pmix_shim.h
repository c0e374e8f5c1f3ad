/* The functions of PMIx that start MPI's processes, as libmegatrain-mpi.so exports them where it
   was built with PMIx. PMIx is the interface by which MPI learns, when it starts, which processes a
   job has: a launcher serves it on each machine (https://pmix.org, standard 4.1). This header
   depends on no header of PMIx.

   Functions return 0 or an error of PMIx, which `describe` puts in words. */
#ifndef MEGATRAIN_ENGINE_COMM_MPI_PMIX_SHIM_H_
#define MEGATRAIN_ENGINE_COMM_MPI_PMIX_SHIM_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with the structs below. */
#define MEGATRAIN_PMIX_VERSION 1
/* The name of the function of type MegatrainPmixFunction. */
#define MEGATRAIN_PMIX_FUNCTION "megatrain_pmix"

struct MegatrainPmixJob {
  const char* name;      /* unique to the job, at most 255 bytes, the same on all machines */
  const char* directory; /* for the sockets and files of this machine's processes; it must exist */
  int machines;
  const char* const* machine_names;
  const int* machine_ranks; /* how many ranks a machine has; the first ones are machine 0's */
  int machine;              /* the one of this process */
  /* Is called when all processes of this machine have given their data, on a thread of PMIx. It
     must not wait. The data are valid until it returns, and null if there are none. It must see
     that `exchanged` is called with `ticket`, once, from any thread. The next call comes after
     that. */
  void (*exchange)(void* context, const char* data, size_t bytes, void* ticket);
  void* context;
};

struct MegatrainPmix {
  int version;
  const char* (*describe)(int error);
  /* Begins to serve the processes of this machine. Copies what `job` points to, but for `context`.
     A process may call it once. */
  int (*start)(const struct MegatrainPmixJob* job);
  /* Calls `set` for each variable ("NAME=VALUE") that the environment of a rank must have. The rank
     must be of this machine. */
  int (*environment)(int rank, void* context, void (*set)(void* context, const char* variable));
  /* Ends an exchange with the data of all machines, in their order, or as failed if `data` is null.
     Copies the data. */
  void (*exchanged)(void* ticket, const char* data, size_t bytes);
  /* Ends the service, also after an error of `start`. No exchange may be under way. */
  void (*stop)(void);
};

typedef const struct MegatrainPmix* (*MegatrainPmixFunction)(void);

#ifdef __cplusplus
}
#endif

#endif /* MEGATRAIN_ENGINE_COMM_MPI_PMIX_SHIM_H_ */
