// Keeps cuDNN's graphs. Each takes half a second to build, which a thread of the cache's own does,
// so that they can be there before a step needs them.
//
// Thread safety: all methods may be called from any thread.
#ifndef MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_GRAPH_CACHE_H_
#define MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_GRAPH_CACHE_H_

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/device/cuda/libraries/cudnn_graphs.h"

namespace megatrain {

class CudnnGraphCache {
 public:
  // `graphs` must outlive this object, and is asked to Make by nobody else. `begin` is called on
  // the building thread before anything is built.
  CudnnGraphCache(CudnnGraphs* graphs, std::function<void()> begin);
  // Waits for the graph that is being built; those that are only wanted are not built any more.
  ~CudnnGraphCache();

  // Has these built, after those that were wanted before. Returns at once.
  void Want(const std::vector<CudnnGraphKey>& keys);
  // Waits for the graph if it is not built yet, and has it built next: whether there is one must
  // not depend on time. Null: cuDNN has none. Valid as long as this object.
  const CudnnGraph* Get(const CudnnGraphKey& key);

  // "3 shapes are left to our own kernels, the last one as cuDNN says: ..."; empty if there is a
  // graph of every shape so far.
  std::string DescribeRefused() const;

 private:
  struct Entry {
    bool built = false;
    std::unique_ptr<CudnnGraph> graph;  // null, once built: there is none
  };

  void Build();

  CudnnGraphs* const graphs_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<CudnnGraphKey, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::deque<CudnnGraphKey> wanted_ ABSL_GUARDED_BY(mutex_);  // may be built already
  int refused_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string why_refused_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread builder_;  // last: it uses the rest
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_GRAPH_CACHE_H_
