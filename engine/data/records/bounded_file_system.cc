// Invariant: `recent` lists the files that have a descriptor, the one read last at its front.
#include "engine/data/records/bounded_file_system.h"

#include <sys/resource.h>

#include <algorithm>
#include <list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace megatrain {

size_t DescriptorShare() {
  constexpr size_t kMax = 256;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kMax;
  return std::clamp<size_t>(limit.rlim_cur / 4, 1, kMax);
}

struct BoundedFileSystem::State {
  const size_t descriptors;
  Mutex mutex;
  std::list<const File*> recent ABSL_GUARDED_BY(mutex);

  explicit State(size_t count) : descriptors(count) {}
};

class BoundedFileSystem::File : public RandomAccessFile {
 public:
  File(FileSystem* base, std::shared_ptr<State> state, FileInfo info,
       std::shared_ptr<RandomAccessFile> file)
      : base_(base),
        state_(std::move(state)),
        info_(info),
        path_(file->path()),
        size_(file->size()) {
    Keep(std::move(file));
  }
  ~File() override {
    MutexLock lock(&state_->mutex);
    if (open_ != nullptr) state_->recent.erase(place_);
  }

  absl::StatusOr<int64_t> ReadUpTo(int64_t offset, void* out, int64_t bytes) const override {
    MT_ASSIGN_OR_RETURN(const std::shared_ptr<RandomAccessFile> file, Open());
    return file->ReadUpTo(offset, out, bytes);
  }
  int64_t size() const override { return size_; }
  const std::string& path() const override { return path_; }

 private:
  absl::StatusOr<std::shared_ptr<RandomAccessFile>> Open() const {
    {
      MutexLock lock(&state_->mutex);
      if (open_ != nullptr) {
        state_->recent.splice(state_->recent.begin(), state_->recent, place_);
        return open_;
      }
    }
    MT_ASSIGN_OR_RETURN(std::shared_ptr<RandomAccessFile> file, base_->OpenForReading(path_));
    MT_ASSIGN_OR_RETURN(const FileInfo now, base_->Examine(path_));
    if (now.device != info_.device || now.inode != info_.inode || now.bytes != info_.bytes ||
        now.modified != info_.modified) {
      return absl::AbortedError(absl::StrCat(path_, ": changed while it was in use"));
    }
    Keep(file);
    return file;
  }

  // Takes the descriptor in, unless another thread has opened one meanwhile, and closes the one
  // that was unused longest if there are too many. Reads under way keep theirs until they end.
  void Keep(std::shared_ptr<RandomAccessFile> file) const {
    std::shared_ptr<RandomAccessFile> closed;  // after the mutex is released
    MutexLock lock(&state_->mutex);
    if (open_ != nullptr) return;
    open_ = std::move(file);
    place_ = state_->recent.insert(state_->recent.begin(), this);
    if (state_->recent.size() <= state_->descriptors) return;
    closed = std::move(state_->recent.back()->open_);
    state_->recent.back()->open_ = nullptr;
    state_->recent.pop_back();
  }

  FileSystem* const base_;
  const std::shared_ptr<State> state_;
  const FileInfo info_;
  const std::string path_;
  const int64_t size_;
  // Guarded by the state's mutex, also for other files' threads.
  mutable std::shared_ptr<RandomAccessFile> open_;
  mutable std::list<const File*>::iterator place_;  // valid while open_ is not null
};

BoundedFileSystem::BoundedFileSystem(FileSystem* base, size_t descriptors)
    : WatchedFileSystem(base, [] { return absl::OkStatus(); }),
      base_(base),
      state_(std::make_shared<State>(descriptors)) {}

BoundedFileSystem::~BoundedFileSystem() = default;

absl::StatusOr<std::unique_ptr<RandomAccessFile>> BoundedFileSystem::OpenForReading(
    const std::string& path) {
  MT_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, base_->OpenForReading(path));
  MT_ASSIGN_OR_RETURN(const FileInfo info, base_->Examine(path));
  return std::unique_ptr<RandomAccessFile>(
      std::make_unique<File>(base_, state_, info, std::move(file)));
}

}  // namespace megatrain
