#include "tests/engine/device/cuda/switch_stack.h"

#if !defined(__x86_64__)
#error "SwitchStack is written for x86-64"
#endif

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
