// Builds and keeps cuDNN's graphs (cudnn_graphs.h). Each takes half a second to build, so a thread
// of the cache builds them before a step needs them.
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
  // `graphs` must outlive this object, and nothing else may call its Make. `begin` is called once,
  // on the building thread, before the first graph is built. It may be null.
  CudnnGraphCache(CudnnGraphs* graphs, std::function<void()> begin);
  // Waits for the graph that is being built. Graphs that are still waiting to be built are dropped.
  // REQUIRES: no thread is in Get.
  ~CudnnGraphCache();

  // Requests graphs, which are built after those that Want requested before. Returns at once.
  void Want(const std::vector<CudnnGraphKey>& keys);
  // Returns the graph of `key`, valid as long as this object, or null if it cannot be built. A
  // graph that is not built yet is built next, and the call waits for it. So the answer does not
  // depend on which graphs are built already.
  const CudnnGraph* Get(const CudnnGraphKey& key);

  // Returns a text such as "3 shapes are left to our own kernels, the last one as cuDNN says: ...",
  // or "" if every graph so far could be built.
  std::string DescribeRefused() const;

 private:
  struct Entry {
    bool built = false;
    std::unique_ptr<CudnnGraph> graph;  // null when `built`: it cannot be built
  };

  // Builds the wanted graphs one after another until this object is destroyed.
  void Build();

  CudnnGraphs* const graphs_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<CudnnGraphKey, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::deque<CudnnGraphKey> wanted_ ABSL_GUARDED_BY(mutex_);  // some may be built already
  int refused_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string why_refused_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread builder_;  // last: it uses the rest
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_DEVICE_CUDA_LIBRARIES_CUDNN_GRAPH_CACHE_H_
