// ExportQueue exports checkpoints, one after the other, on a thread of its own.
//
// Thread safety: Add may be called from any thread, Stop from one at a time.
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
  // Starts the thread.
  ExportQueue();
  // Does what Stop does.
  ~ExportQueue() { Stop(); }
  ExportQueue(const ExportQueue&) = delete;
  ExportQueue& operator=(const ExportQueue&) = delete;

  // Adds an export, which writes the Hugging Face directory `directory` from `checkpoint` as
  // ExportCheckpoint does, both reached through `files`, which must not be null. Does not wait.
  // `done`, which must not be empty, is called once on the queue's thread, with OK or the error of
  // the export. After Stop it is called with Cancelled on the caller's thread, before Add returns.
  // `done` must not call Stop. Any number of exports may wait.
  void Add(const std::string& checkpoint, const std::string& directory,
           std::shared_ptr<FileSystem> files, std::function<void(const absl::Status& status)> done);

  // Abandons all exports, and returns when every `done` has returned. `done` of those that wait is
  // called with Cancelled. The export that runs ends soon, with Cancelled, or with OK or an error
  // of its own if it was faster. May be called again.
  void Stop();

 private:
  std::atomic<bool> ending_{false};
  CallQueue queue_;
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_WORKER_EXPORT_QUEUE_H_
