// Switch goes from one stack to another within a thread.
#ifndef MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_SWITCH_STACK_H_
#define MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_SWITCH_STACK_H_

#include <cstddef>

namespace megatrain {

// A stack and the place where it goes on: a fiber's, or the thread's own.
struct Context {
  void* place = nullptr;  // on the stack, while it is left
#if defined(__SANITIZE_ADDRESS__)
  const void* stack = nullptr;
  size_t stack_bytes = 0;
  void* fake_stack = nullptr;
#endif
#if defined(__SANITIZE_THREAD__)
  void* tsan = nullptr;
#endif
};

// Keeps in *from what a call must keep, and goes on with `to`. Returns when another switch goes on
// with *from, which none may do after `from_ends`.
void Switch(Context* from, const Context& to, bool from_ends);

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_SWITCH_STACK_H_
