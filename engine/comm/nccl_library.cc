#include <nccl.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status.h"
#include "engine/comm/nccl_api.h"
#include "engine/device/cuda/libraries/shared_library.h"

namespace megatrain {
namespace {

static_assert(kNcclSuccess == ncclSuccess && kNcclInProgress == ncclInProgress &&
              sizeof(NcclId) == sizeof(ncclUniqueId));

constexpr char kLibrary[] = "libnccl.so.2";
// The first with communicators that do not block and can be finalised.
constexpr int kVersionMin = NCCL_VERSION(2, 14, 3);

// The functions that are used, by their names in the library.
struct Functions {
  decltype(&ncclGetVersion) version;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclGetUniqueId) unique_id;
  decltype(&ncclCommInitRankConfig) initialize;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclCommFinalize) finalize;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;

  // Returns the first that is missing, or null.
  const char* Find(void* library) {
    FunctionFinder find(library);
    find(version, "ncclGetVersion");
    find(error_string, "ncclGetErrorString");
    find(last_error, "ncclGetLastError");
    find(unique_id, "ncclGetUniqueId");
    find(initialize, "ncclCommInitRankConfig");
    find(async_error, "ncclCommGetAsyncError");
    find(group_start, "ncclGroupStart");
    find(group_end, "ncclGroupEnd");
    find(send, "ncclSend");
    find(receive, "ncclRecv");
    find(broadcast, "ncclBroadcast");
    find(all_gather, "ncclAllGather");
    find(finalize, "ncclCommFinalize");
    find(destroy, "ncclCommDestroy");
    find(abort, "ncclCommAbort");
    return find.missing();
  }
};

ncclComm_t CommOf(void* communicator) { return static_cast<ncclComm_t>(communicator); }
cudaStream_t StreamOf(void* stream) { return static_cast<cudaStream_t>(stream); }

class LoadedNccl : public NcclApi {
 public:
  LoadedNccl(const Functions& functions, std::string library)
      : f_(functions), library_(std::move(library)) {}

  std::string Library() const override { return library_; }

  std::string Describe(int error) const override {
    const char* const words = f_.last_error(nullptr);
    return absl::StrCat(
        "NCCL's error ", error, " (", f_.error_string(static_cast<ncclResult_t>(error)), ")",
        words == nullptr || *words == '\0' ? "" : ": ", words == nullptr ? "" : words);
  }

  int MakeId(NcclId* id) override {
    ncclUniqueId made;
    const ncclResult_t error = f_.unique_id(&made);
    if (error == ncclSuccess) std::memcpy(id->bytes, made.internal, sizeof(id->bytes));
    return error;
  }
  int Initialize(const NcclId& id, int rank, int ranks, void** communicator) override {
    ncclUniqueId shared;
    std::memcpy(shared.internal, id.bytes, sizeof(id.bytes));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t made = nullptr;
    const ncclResult_t error = f_.initialize(&made, ranks, shared, rank, &config);
    *communicator = made;
    return error;
  }
  int AsyncError(void* communicator, int* error) override {
    ncclResult_t under_way = ncclSuccess;
    const ncclResult_t own = f_.async_error(CommOf(communicator), &under_way);
    *error = under_way;
    return own;
  }

  int GroupStart() override { return f_.group_start(); }
  int GroupEnd() override { return f_.group_end(); }
  int Send(void* communicator, const void* data, int64_t bytes, int peer, void* stream) override {
    return f_.send(data, static_cast<size_t>(bytes), ncclUint8, peer, CommOf(communicator),
                   StreamOf(stream));
  }
  int Receive(void* communicator, void* data, int64_t bytes, int peer, void* stream) override {
    return f_.receive(data, static_cast<size_t>(bytes), ncclUint8, peer, CommOf(communicator),
                      StreamOf(stream));
  }
  int Broadcast(void* communicator, void* data, int64_t bytes, int root, void* stream) override {
    return f_.broadcast(data, data, static_cast<size_t>(bytes), ncclUint8, root,
                        CommOf(communicator), StreamOf(stream));
  }
  int AllGather(void* communicator, const void* own, void* all, int64_t part_bytes,
                void* stream) override {
    return f_.all_gather(own, all, static_cast<size_t>(part_bytes), ncclUint8, CommOf(communicator),
                         StreamOf(stream));
  }

  int Finalize(void* communicator) override { return f_.finalize(CommOf(communicator)); }
  int Destroy(void* communicator) override { return f_.destroy(CommOf(communicator)); }
  int Abort(void* communicator) override { return f_.abort(CommOf(communicator)); }

 private:
  const Functions f_;
  const std::string library_;
};

// ncclGetVersion's number, of NCCL_VERSION.
std::string VersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclApi>> LoadNccl() {
  const absl::StatusOr<SharedLibrary> library = OpenSharedLibrary(kLibrary);
  if (!library.ok()) {
    return absl::UnavailableError(
        absl::StrCat(library.status().message(), "; install NCCL ", NCCL_MAJOR, ".", NCCL_MINOR,
                     " or newer (NVIDIA's libnccl2, or the Python package nvidia-nccl-cu",
                     CUDART_VERSION / 1000, "), or name its directory in LD_LIBRARY_PATH"));
  }
  Functions functions;
  if (const char* const missing = functions.Find(library->handle); missing != nullptr) {
    return absl::UnavailableError(absl::StrCat(library->Describe(), " is too old: it has no ",
                                               missing, "; install NCCL ", NCCL_MAJOR, ".",
                                               NCCL_MINOR, " or newer"));
  }
  int version = 0;
  if (functions.version(&version) != ncclSuccess || version < kVersionMin) {
    return absl::UnavailableError(absl::StrCat(library->Describe(), " is too old (",
                                               VersionText(version), "); install NCCL ", NCCL_MAJOR,
                                               ".", NCCL_MINOR, " or newer"));
  }
  return std::make_unique<LoadedNccl>(
      functions, absl::StrCat(VersionText(version), " (", library->Describe(), ")"));
}

}  // namespace megatrain
