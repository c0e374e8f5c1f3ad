// ExportQueue exports checkpoints, one after the other, on a thread of its own.
//
// Thread safety: Add from any thread, Stop from one thread.
#ifndef MEGATRAIN_SERVER_WORKER_EXPORT_QUEUE_H_
#define MEGATRAIN_SERVER_WORKER_EXPORT_QUEUE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "engine/base/file.h"
#include "server/base/call_queue.h"

namespace megatrain {

class ExportQueue {
 public:
  ExportQueue();
  ~ExportQueue() { Stop(); }
  ExportQueue(const ExportQueue&) = delete;
  ExportQueue& operator=(const ExportQueue&) = delete;

  // Writes the Hugging Face directory `directory` from `checkpoint`, both reached through `files`,
  // as ExportCheckpoint does. `done` is called once on the queue's thread, with OK or the error of
  // the export. After Stop it is called with Cancelled on the caller's thread, before Add returns.
  // `done` must not call Stop.
  void Add(const std::string& checkpoint, const std::string& directory,
           std::shared_ptr<FileSystem> files, std::function<void(const absl::Status& status)> done);

  // Abandons all exports. `done` of those that wait is called with Cancelled. The one that runs
  // stops soon; it ends with Cancelled, or with OK or an error of its own if it was faster. Returns
  // when every `done` has returned.
  void Stop();

 private:
  std::atomic<bool> ending_{false};
  CallQueue queue_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_WORKER_EXPORT_QUEUE_H_
