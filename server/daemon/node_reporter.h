// NodeReporter reads the state of the daemon and its machine, for NodeService and the metrics page.
#ifndef MEGATRAIN_SERVER_DAEMON_NODE_REPORTER_H_
#define MEGATRAIN_SERVER_DAEMON_NODE_REPORTER_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "engine/host/engine_host.h"
#include "megatrain/v1/node.pb.h"
#include "server/manager/job_table.h"

namespace megatrain {

// Thread safety: all methods may be called from any thread. Read waits briefly for mutexes, and
// asks the file system how much is free.
class NodeReporter {
 public:
  // `host` and `jobs` must outlive the reporter. Read measures the disk of `state_directory`.
  NodeReporter(const EngineHost* host, const JobTable* jobs, std::string state_directory);

  // The state is STARTING until it is set.
  void SetState(v1::Node::State state) { state_ = state; }
  v1::Node::State state() const { return state_; }
  // Sets the bytes of the pool pinned so far and of the whole pool, which Read returns until the
  // host has its pool.
  void SetPinning(int64_t pinned, int64_t capacity);

  // Returns the node as it is now: state, devices, rates, pool, disk and counts of jobs. Rates are
  // unset until they are measured. Bytes of the disk are 0 if the file system does not tell them.
  v1::Node Read() const;

 private:
  const EngineHost* const host_;
  const JobTable* const jobs_;
  const std::string state_directory_;
  v1::Node fixed_;  // what does not change
  std::atomic<v1::Node::State> state_{v1::Node::STARTING};
  std::atomic<int64_t> pinned_{0}, capacity_{0};
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_DAEMON_NODE_REPORTER_H_
