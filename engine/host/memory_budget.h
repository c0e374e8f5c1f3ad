// MemoryBudget: the memory that a job may plan with.
#ifndef MEGATRAIN_ENGINE_HOST_MEMORY_BUDGET_H_
#define MEGATRAIN_ENGINE_HOST_MEMORY_BUDGET_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "engine/memory/host_offer.h"

namespace megatrain {

// Host memory and the memory of one device, in bytes.
struct MemoryBudget {
  int64_t host_bytes = 0;  // free host memory, including the pool's
  // The part of host_bytes that a pool has, or that is set aside for one. Tiles, slabs, stash and
  // batches must fit into it, and everything else into the rest. -1 if host_bytes is not divided.
  int64_t pool_bytes = -1;
  // Free device memory. For the cpu device, which uses host memory, 0 lets the plan choose:
  // - A training plan takes what recomputing nothing needs or, with engine.recompute `all`, what
  //   recomputing everything needs, but at most half of the memory that the host state leaves free.
  //   Several devices have equal parts of that. If even the smallest plan needs more, it takes what
  //   that needs, at most all that is free.
  // - A plan of forward passes has no limit.
  int64_t device_bytes = 0;
  // Device memory left free besides device_bytes, for what kernels and libraries load later. 0 if
  // it was already subtracted.
  int64_t device_reserve_bytes = 0;
  bool device_shares_host = true;  // true if the device uses host memory

  // Sets the host memory for a pool that is not reserved yet. If more is set aside in huge pages
  // than is free otherwise, the pool will use those.
  void SetHost(const HostOffer& offer) {
    const bool set_aside = offer.set_aside_bytes > offer.free_bytes;
    host_bytes = offer.free_bytes + (set_aside ? offer.set_aside_bytes : 0);
    pool_bytes = set_aside ? offer.set_aside_bytes : -1;
  }
  // Sets the host memory with a pool that is reserved: `bytes` of it may be used, and `beside`
  // bytes of the memory that is not in it.
  void SetPool(int64_t bytes, int64_t beside) {
    pool_bytes = bytes;
    host_bytes = bytes + beside;
  }
  // Divides the host memory besides the pool evenly among `of` devices, and leaves the share of
  // `part` of them. REQUIRES: 0 <= part <= of, and of > 0.
  void KeepPart(int part, int of) {
    const int64_t beside = host_bytes - std::max<int64_t>(0, pool_bytes);
    host_bytes -= beside - beside / of * part;
  }
  // Sets the device memory: `bytes` are free, of which `reserve_bytes` stay free. nullopt means
  // that the device uses host memory.
  void SetDevice(std::optional<int64_t> bytes, int64_t reserve_bytes = 0) {
    device_shares_host = !bytes.has_value();
    device_reserve_bytes = reserve_bytes;
    device_bytes = std::max<int64_t>(0, bytes.value_or(0) - reserve_bytes);
  }
  // Leaves `bytes` more of a device's own memory free. Does nothing if the device uses host memory.
  void KeepFree(int64_t bytes) {
    if (device_shares_host) return;
    device_reserve_bytes += bytes;
    device_bytes = std::max<int64_t>(0, device_bytes - bytes);
  }
};

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_HOST_MEMORY_BUDGET_H_
