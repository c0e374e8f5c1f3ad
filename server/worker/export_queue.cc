#include "server/worker/export_queue.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/thread_name.h"
#include "engine/base/watched_file_system.h"
#include "engine/inspect/export_checkpoint.h"

namespace megatrain {
namespace {

absl::Status Abandoned() {
  return absl::CancelledError("the export was abandoned: the server ends");
}

}  // namespace

ExportQueue::ExportQueue() : thread_([this] { Work(); }) {}

void ExportQueue::Stop() {
  {
    MutexLock lock(&mutex_);
    ending_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void ExportQueue::Add(const std::string& checkpoint, const std::string& directory,
                      std::shared_ptr<FileSystem> files,
                      std::function<void(const absl::Status& status)> done) {
  {
    MutexLock lock(&mutex_);
    if (!ending_) {
      items_.push_back({checkpoint, directory, std::move(files), std::move(done)});
      changed_.NotifyAll();
      return;
    }
  }
  if (done) done(Abandoned());
}

void ExportQueue::Work() {
  NameThisThread("exports");
  const auto go_on = [this]() -> absl::Status { return ending_ ? Abandoned() : absl::OkStatus(); };
  while (true) {
    Item item;
    {
      MutexLock lock(&mutex_);
      while (items_.empty() && !ending_) changed_.Wait(&mutex_);
      if (items_.empty()) return;
      item = std::move(items_.front());
      items_.pop_front();
    }
    absl::Status status;
    try {
      WatchedFileSystem files(item.files.get(), go_on);
      status = ExportCheckpoint(item.checkpoint, item.directory, &files);
    } catch (const std::exception& error) {  // out of memory, a library's own
      status = absl::InternalError(absl::StrCat("exporting ", item.checkpoint, ": ", error.what()));
    }
    if (item.done) item.done(status);
  }
}

}  // namespace megatrain
