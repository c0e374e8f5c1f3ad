#include "engine/device/cpu/product/workspace.h"

#include <cstdlib>
#include <new>
#include <utility>

#include "engine/base/status.h"

namespace megatrain {
namespace {

// A product keeps about 2 KB; packed documents of ever new lengths make ever new shapes, and this
// bounds them. oneDNN keeps the code of the last 1,024 shapes itself, so a return is cheap.
constexpr size_t kProductsMax = 512;

}  // namespace

void Workspace::Free::operator()(void* memory) const { std::free(memory); }

void* Workspace::Buffer(int slot, int64_t bytes) {
  const size_t at = static_cast<size_t>(slot);
  if (bytes_[at] < bytes || buffers_[at] == nullptr) {
    const int64_t rounded = (bytes + 4095) / 4096 * 4096 + 4096;
    buffers_[at].reset();
    buffers_[at].reset(std::aligned_alloc(4096, static_cast<size_t>(rounded)));
    if (buffers_[at] == nullptr) throw std::bad_alloc();
    bytes_[at] = rounded;
  }
  return buffers_[at].get();
}

absl::Status Workspace::Multiply(const ProductShape& shape, const void* a, const void* b, void* out,
                                 const void* bias) {
  auto found = products_.find(shape);
  if (found == products_.end()) {
    if (products_.size() >= kProductsMax) products_.clear();
    MT_ASSIGN_OR_RETURN(std::unique_ptr<Product> product, Product::Create(shape));
    found = products_.emplace(shape, std::move(product)).first;
  }
  Product& product = *found->second;
  void* scratch = Buffer(0, static_cast<int64_t>(product.scratch_bytes()));
  return product.Run(a, b, out, bias, scratch);
}

WorkspacePool::Lease::Lease(WorkspacePool* pool, std::unique_ptr<Workspace> workspace)
    : pool_(pool), workspace_(std::move(workspace)) {
  UseOneOpenMpThread();
}

WorkspacePool::Lease::~Lease() {
  MutexLock lock(&pool_->mutex_);
  pool_->idle_.push_back(std::move(workspace_));
}

WorkspacePool::Lease WorkspacePool::Take() {
  std::unique_ptr<Workspace> workspace;
  {
    MutexLock lock(&mutex_);
    if (!idle_.empty()) {
      workspace = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (workspace == nullptr) workspace = std::make_unique<Workspace>();
  return Lease(this, std::move(workspace));
}

}  // namespace megatrain
