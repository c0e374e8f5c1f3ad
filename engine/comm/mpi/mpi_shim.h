/* The functions of MPI that communicators use, as libmegatrain-mpi.so exports them. That library is
   built against one MPI, whose types and constants have no fixed layout; this header depends on
   none, so that programs load the library only where a job runs on several processes.

   Functions return 0 or an error of MPI, which `describe` puts in words. Messages between two ranks
   with the same tag on one communicator arrive in the order in which they were sent.

   Thread safety: after `initialize` has returned 0, any thread may call the functions, also several
   at once. The calls for one request must not overlap. */
#ifndef MEGATRAIN_ENGINE_COMM_MPI_MPI_SHIM_H_
#define MEGATRAIN_ENGINE_COMM_MPI_MPI_SHIM_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with the struct below. */
#define MEGATRAIN_MPI_VERSION 1
/* The name of the function of type MegatrainMpiFunction. */
#define MEGATRAIN_MPI_FUNCTION "megatrain_mpi"

/* Longer messages than this may wait for the receiver before MPI sends them. */
#define MEGATRAIN_MPI_EAGER_BYTES (256 * 1024)

/* From `initialize`: this MPI lets only one thread call it at a time. */
#define MEGATRAIN_MPI_SINGLE_THREADED (-1)
/* From `initialize`: MPI was initialized, or finalized, in this process before. */
#define MEGATRAIN_MPI_USED (-2)
/* From `initialize`: the launcher's PMIx did not bring the processes together. */
#define MEGATRAIN_MPI_NOT_MET (-3)
/* As the peer of `receive`: any rank. */
#define MEGATRAIN_MPI_ANY_RANK (-1)

typedef uint64_t MegatrainMpiHandle; /* of a communicator or a request */

struct MegatrainMpi {
  int version;
  /* Describes the MPI library, such as "Open MPI v4.1.4". `text` has `bytes` bytes. */
  void (*describe_library)(char* text, int bytes);
  /* Describes an error of MPI that a function here has returned, but none of the values above.
     `text` has `bytes` bytes. */
  void (*describe)(int error, char* text, int bytes);

  /* Starts MPI and sets this process's rank and the number of ranks. All processes of the job must
     call it, each at most once. Returns 0, an error of MPI, or one of the values above. */
  int (*initialize)(int* rank, int* ranks);
  /* Ends MPI. Waits for the other processes. */
  int (*finalize)(void);
  /* Makes another communicator of all ranks. All ranks must call it. */
  int (*create_communicator)(MegatrainMpiHandle* communicator);

  /* Begin to send and receive. The memory must stay valid until `test` says that it is done. */
  int (*send)(MegatrainMpiHandle communicator, const void* data, int bytes, int peer, int tag,
              MegatrainMpiHandle* request);
  int (*receive)(MegatrainMpiHandle communicator, void* data, int bytes, int peer, int tag,
                 MegatrainMpiHandle* request);
  /* Lets MPI move data, and says whether the request is done. A request that is done, or for which
     this returns an error, is freed and must not be used again. */
  int (*test)(MegatrainMpiHandle* request, int* done);
  /* Asks MPI to end a request early. Call `test` until the request is done. */
  int (*cancel)(MegatrainMpiHandle* request);
};

typedef const struct MegatrainMpi* (*MegatrainMpiFunction)(void);

#ifdef __cplusplus
}
#endif

#endif /* MEGATRAIN_ENGINE_COMM_MPI_MPI_SHIM_H_ */
