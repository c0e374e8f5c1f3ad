// The interface to NCCL: the functions that NcclCommunicator calls. The code that uses it is built
// and tested without NCCL. The methods return an ncclResult_t as an int, 0 for success.
//
// Each `stream` is a cudaStream_t. Communicators do not block: where NCCL has not finished what a
// call began, the call returns kNcclInProgress, and AsyncError sets its `error` to that.
//
// Thread safety: the calls on one communicator must not overlap.
#ifndef MEGATRAIN_ENGINE_COMM_NCCL_API_H_
#define MEGATRAIN_ENGINE_COMM_NCCL_API_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace megatrain {

// The values of ncclResult_t that callers distinguish.
inline constexpr int kNcclSuccess = 0;
inline constexpr int kNcclInProgress = 7;

// The identifier that ranks share to make a communicator.
struct NcclId {
  char bytes[128] = {};
};

class NcclApi {
 public:
  virtual ~NcclApi() = default;

  // Returns the library's version and file, for people: "2.28.9 (/usr/lib/libnccl.so.2)", with the
  // files that were passed over.
  virtual std::string Library() const = 0;
  // Describes an error, for example "NCCL's error 2 (unhandled system error)", with NCCL's last
  // message about it.
  virtual std::string Describe(int error) const = 0;

  // Makes a new id. One rank does this, and gives the id to the others for Initialize.
  virtual int MakeId(NcclId* id) = 0;
  // Begins to make a communicator on the current GPU of the calling thread. AsyncError tells when
  // it is made. `communicator` is set even if this call returns kNcclInProgress.
  virtual int Initialize(const NcclId& id, int rank, int ranks, void** communicator) = 0;
  // Sets `error` to the state of the calls that are under way. Returns an error of this call
  // itself.
  virtual int AsyncError(void* communicator, int* error) = 0;

  // Operations of a thread between its GroupStart and GroupEnd are queued on the stream together.
  // The thread must call GroupEnd also if an operation returned an error.
  virtual int GroupStart() = 0;
  virtual int GroupEnd() = 0;
  virtual int Send(void* communicator, const void* data, int64_t bytes, int peer, void* stream) = 0;
  virtual int Receive(void* communicator, void* data, int64_t bytes, int peer, void* stream) = 0;
  // Fills `data` of all ranks from that of the root.
  virtual int Broadcast(void* communicator, void* data, int64_t bytes, int root, void* stream) = 0;
  // Fills `all` with equal parts from all ranks, in their order. Each part has `part_bytes` bytes.
  // `own` points to this rank's part within `all`, which must be there before.
  virtual int AllGather(void* communicator, const void* own, void* all, int64_t part_bytes,
                        void* stream) = 0;

  // Begins to end the communicator, once all that was queued is done. AsyncError tells when it has
  // ended.
  virtual int Finalize(void* communicator) = 0;
  // Frees a communicator that Finalize has ended.
  virtual int Destroy(void* communicator) = 0;
  // Ends what is queued and frees the communicator.
  virtual int Abort(void* communicator) = 0;
};

// Loads libnccl.so.2, from the places of shared_library.h (engine/device/cuda/libraries). Returns
// Unavailable, with the library or why none could be loaded, if there is none or it is too old, and
// Unimplemented from a build without NCCL's headers.
absl::StatusOr<std::unique_ptr<NcclApi>> LoadNccl();

// The function type by which a program gives the engine access to NCCL. Each call returns an api
// for one rank.
using NcclLoader = std::function<absl::StatusOr<std::unique_ptr<NcclApi>>()>;

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_COMM_NCCL_API_H_
