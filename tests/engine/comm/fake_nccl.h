// NCCL for ranks that are threads with an emulated GPU each: operations run in the streams and wait
// there for the other ranks, as NCCL's kernels do. What is not done at once is in progress first,
// and any call can be made to fail.
//
// Thread safety: all methods may be called from any thread.
#ifndef MEGATRAIN_TESTS_ENGINE_COMM_FAKE_NCCL_H_
#define MEGATRAIN_TESTS_ENGINE_COMM_FAKE_NCCL_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/nccl_api.h"

namespace megatrain {

// What the ranks of a test share.
struct FakeNcclNetwork : std::enable_shared_from_this<FakeNcclNetwork> {
  struct Message {
    const char* data = nullptr;
    int64_t bytes = 0;
    bool taken = false;
  };

  std::mutex mutex;
  std::condition_variable changed;
  int initialized = 0, finalized = 0;  // ranks
  // By sender and receiver.
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Message>>> messages;
  std::set<std::pair<int, int>> sends;  // of which there was any Send
};

// The NCCL of one rank.
class FakeNccl : public NcclApi {
 public:
  // Rank 0 gives its network to the others, with the id.
  explicit FakeNccl(std::shared_ptr<FakeNcclNetwork> network = std::make_shared<FakeNcclNetwork>())
      : network_(std::move(network)) {}
  // REQUIRES: every communicator was destroyed or aborted.
  ~FakeNccl() override;

  // That which rank 0 gives. REQUIRES: no communicator is being made.
  FakeNcclNetwork& network() { return *network_; }
  // The calls of this name give `error`, from the `after`-th on (0: the next). As "Operation" what
  // is under way gives it, by AsyncError.
  void Fail(const std::string& method, int error, int after = 0);
  // The calls so far, without AsyncError: "Send 400 to 1".
  std::vector<std::string> calls() const;

  std::string Library() const override { return "0.0.0 (fake)"; }
  std::string Describe(int error) const override { return "fake error " + std::to_string(error); }
  int MakeId(NcclId* id) override;
  int Initialize(const NcclId& id, int rank, int ranks, void** communicator) override;
  int AsyncError(void* communicator, int* error) override;
  int GroupStart() override;
  int GroupEnd() override;
  int Send(void* communicator, const void* data, int64_t bytes, int peer, void* stream) override;
  int Receive(void* communicator, void* data, int64_t bytes, int peer, void* stream) override;
  int Broadcast(void* communicator, void* data, int64_t bytes, int root, void* stream) override;
  int AllGather(void* communicator, const void* own, void* all, int64_t part_bytes,
                void* stream) override;
  int Finalize(void* communicator) override;
  int Destroy(void* communicator) override;
  int Abort(void* communicator) override;

 private:
  struct Transfer {
    bool sends = false;
    int peer = 0;
    char* data = nullptr;
    int64_t bytes = 0;
  };
  // What the streams still use after its end. Guarded by the network's mutex.
  struct State {
    int rank = 0, ranks = 0;
    bool aborted = false;
    int under_way = 0;  // groups that streams have not done
  };

  // Notes the call and returns the error that it is to give, or 0.
  int Called(const std::string& method, const std::string& arguments = "");
  // Sends and receives of a group. Returns when they are done or aborted.
  static void Run(FakeNcclNetwork* network, State* state, const std::vector<Transfer>& transfers);
  void Add(const Transfer& transfer, void* stream);

  mutable std::mutex mutex_;  // before the network's
  std::shared_ptr<FakeNcclNetwork> network_;
  std::map<std::string, std::pair<int, int>> failures_;  // by name: after, error
  std::vector<std::string> calls_;
  std::shared_ptr<State> state_;  // of the communicator, null before and after
  std::vector<Transfer> group_;
  void* group_stream_ = nullptr;
  bool in_group_ = false, finalizing_ = false;
  int in_progress_ = 0;  // calls of AsyncError until what was begun is done
};

// Loads an NCCL for each rank of jobs of `ranks` ranks, one job after the other.
//
// Thread safety: as FakeNccl.
class FakeNcclLoader {
 public:
  explicit FakeNcclLoader(int ranks) : ranks_(ranks) {}

  // This object must outlive it. Ranks are numbered in the order of the calls.
  NcclLoader loader() {
    return [this]() -> absl::StatusOr<std::unique_ptr<NcclApi>> {
      networks_.push_back(std::make_shared<FakeNcclNetwork>());
      auto api = std::make_unique<FakeNccl>(networks_.back());
      apis_.push_back(api.get());
      return api;
    };
  }
  // Returns that of a rank of the last job. REQUIRES: the job runs.
  FakeNccl& of(int rank) { return *apis_[apis_.size() - static_cast<size_t>(ranks_ - rank)]; }
  // Returns the senders and receivers of all calls of Send.
  std::set<std::pair<int, int>> sends() const {
    std::set<std::pair<int, int>> all;
    for (const std::shared_ptr<FakeNcclNetwork>& network : networks_) {
      std::lock_guard<std::mutex> lock(network->mutex);
      all.insert(network->sends.begin(), network->sends.end());
    }
    return all;
  }
  int loaded() const { return static_cast<int>(apis_.size()); }

 private:
  const int ranks_;
  // Of each of them; those of ranks 0 are in use.
  std::vector<std::shared_ptr<FakeNcclNetwork>> networks_;
  std::vector<FakeNccl*> apis_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_COMM_FAKE_NCCL_H_
