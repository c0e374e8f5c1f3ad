// SwitchStack goes from one stack to another within a thread.
#ifndef MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_SWITCH_STACK_H_
#define MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_SWITCH_STACK_H_

// Keeps what a call must keep on the stack, leaves the stack's place in *from and goes on with
// `to`. swapcontext would do, but asks the kernel for the signal mask each time: a hundred times
// slower.
extern "C" void SwitchStack(void** from, void* to);

#endif  // MEGATRAIN_TESTS_ENGINE_DEVICE_CUDA_SWITCH_STACK_H_
