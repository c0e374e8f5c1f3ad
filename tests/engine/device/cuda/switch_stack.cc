#include "tests/engine/device/cuda/switch_stack.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

#if !defined(__x86_64__)
#error "SwitchStack is written for x86-64"
#endif

// Leaves the stack's place in *from and goes on with `to`. swapcontext would do, but asks the
// kernel for the signal mask each time: a hundred times slower.
extern "C" void SwitchStack(void** from, void* to);

__asm__(
    ".text\n"
    ".globl SwitchStack\n"
    ".type SwitchStack, @function\n"
    "SwitchStack:\n"
    "  pushq %rbp\n"
    "  pushq %rbx\n"
    "  pushq %r12\n"
    "  pushq %r13\n"
    "  pushq %r14\n"
    "  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n"
    "  popq %r14\n"
    "  popq %r13\n"
    "  popq %r12\n"
    "  popq %rbx\n"
    "  popq %rbp\n"
    "  ret\n"
    ".size SwitchStack, . - SwitchStack\n");

namespace megatrain {

void Switch(Context* from, const Context& to, [[maybe_unused]] bool from_ends) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(from_ends ? nullptr : &from->fake_stack, to.stack, to.stack_bytes);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(to.tsan, 0);
#endif
  SwitchStack(&from->place, to.place);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
}

}  // namespace megatrain
