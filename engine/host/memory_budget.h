// MemoryBudget: the memory that a job may plan with.
#ifndef MEGATRAIN_ENGINE_HOST_MEMORY_BUDGET_H_
#define MEGATRAIN_ENGINE_HOST_MEMORY_BUDGET_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "engine/memory/host_offer.h"

namespace megatrain {

struct MemoryBudget {
  int64_t host_bytes = 0;  // free host memory, the pool's included
  // Of it, what a pool that is reserved already has, or what is set aside for one: tiles, slabs,
  // stash and batches come from there alone, all else from beside it. Negative: nothing is.
  int64_t pool_bytes = -1;
  // Device memory. The cpu device's lies in host memory: 0 = what `recompute: none` needs, at most
  // half of what is free after the host state.
  int64_t device_bytes = 0;
  // Left free beside those, for what kernels and libraries load later. 0: device_bytes are
  // without it already.
  int64_t device_reserve_bytes = 0;
  bool device_shares_host = true;

  // No pool is reserved yet: it is to lie in huge pages where more is set aside than is free.
  void SetHost(const HostOffer& offer) {
    const bool set_aside = offer.set_aside_bytes > offer.free_bytes;
    host_bytes = offer.free_bytes + (set_aside ? offer.set_aside_bytes : 0);
    pool_bytes = set_aside ? offer.set_aside_bytes : -1;
  }
  // Of a pool that is reserved, `bytes` may be had, and `beside` of the memory that is not in it.
  void SetPool(int64_t bytes, int64_t beside) {
    pool_bytes = bytes;
    host_bytes = bytes + beside;
  }
  // `bytes` of a device's own memory are free, of which `reserve_bytes` stay so; nothing: the
  // device lies in host memory.
  void SetDevice(std::optional<int64_t> bytes, int64_t reserve_bytes = 0) {
    device_shares_host = !bytes.has_value();
    device_reserve_bytes = reserve_bytes;
    device_bytes = std::max<int64_t>(0, bytes.value_or(0) - reserve_bytes);
  }
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HOST_MEMORY_BUDGET_H_
