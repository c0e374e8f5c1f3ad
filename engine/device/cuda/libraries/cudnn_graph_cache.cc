#include "engine/device/cuda/libraries/cudnn_graph_cache.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace megatrain {

CudnnGraphCache::CudnnGraphCache(CudnnGraphs* graphs, std::function<void()> begin)
    : graphs_(graphs), builder_([this, begin = std::move(begin)] {
        if (begin) begin();
        Build();
      }) {}

CudnnGraphCache::~CudnnGraphCache() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  builder_.join();
}

void CudnnGraphCache::Want(const std::vector<CudnnGraphKey>& keys) {
  MutexLock lock(&mutex_);
  for (const CudnnGraphKey& key : keys) {
    if (entries_.try_emplace(key).second) wanted_.push_back(key);
  }
  changed_.NotifyAll();
}

const CudnnGraph* CudnnGraphCache::Get(const CudnnGraphKey& key) {
  MutexLock lock(&mutex_);
  const Entry& entry = entries_.try_emplace(key).first->second;
  if (!entry.built) {
    wanted_.push_front(key);
    changed_.NotifyAll();
    while (!entry.built) changed_.Wait(&mutex_);
  }
  return entry.graph.get();
}

std::string CudnnGraphCache::DescribeRefused() const {
  MutexLock lock(&mutex_);
  if (refused_ == 0) return "";
  return absl::StrCat(
      refused_, " shapes are left to our own kernels, the last one as cuDNN says: ", why_refused_);
}

void CudnnGraphCache::Build() {
  mutex_.Lock();
  while (true) {
    while (!stopping_ && wanted_.empty()) changed_.Wait(&mutex_);
    if (stopping_) break;
    const CudnnGraphKey key = wanted_.front();
    wanted_.pop_front();
    Entry& entry = entries_[key];
    if (entry.built) continue;  // wanted twice
    mutex_.Unlock();
    absl::StatusOr<std::unique_ptr<CudnnGraph>> graph = graphs_->Make(key);
    mutex_.Lock();
    if (graph.ok()) {
      entry.graph = *std::move(graph);
    } else {
      ++refused_;
      why_refused_ = std::string(graph.status().message());
    }
    entry.built = true;
    changed_.NotifyAll();
  }
  mutex_.Unlock();
}

}  // namespace megatrain
