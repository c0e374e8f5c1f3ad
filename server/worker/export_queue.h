// Exports of checkpoints, one after the other on a thread of their own.
//
// Thread safety: all methods from any thread.
#ifndef MEGATRAIN_SERVER_WORKER_EXPORT_QUEUE_H_
#define MEGATRAIN_SERVER_WORKER_EXPORT_QUEUE_H_

#include <atomic>
#include <deque>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "engine/base/file.h"
#include "engine/base/mutex.h"

namespace megatrain {

class ExportQueue {
 public:
  // `files` must outlive the queue.
  explicit ExportQueue(FileSystem* files);
  // Abandons the export that runs and those that wait: their `done` is told Cancelled.
  ~ExportQueue();
  ExportQueue(const ExportQueue&) = delete;
  ExportQueue& operator=(const ExportQueue&) = delete;

  // Writes a HF directory from a checkpoint; `done` is called on the queue's thread.
  void Add(const std::string& checkpoint, const std::string& directory,
           std::function<void(const absl::Status& status)> done);

 private:
  struct Item {
    std::string checkpoint, directory;
    std::function<void(const absl::Status& status)> done;
  };
  void Work();

  FileSystem* const files_;
  std::atomic<bool> ending_{false};
  Mutex mutex_;
  CondVar changed_;
  std::deque<Item> items_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last: uses the rest
};

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_WORKER_EXPORT_QUEUE_H_
