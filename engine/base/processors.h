// Finds the processors that this process may use and the NUMA node of each, and binds threads to
// them.
#ifndef MEGATRAIN_ENGINE_BASE_PROCESSORS_H_
#define MEGATRAIN_ENGINE_BASE_PROCESSORS_H_

#include <string>
#include <vector>

namespace megatrain {

struct Processor {
  int number = 0;  // the kernel's number
  int node = 0;    // its NUMA node, whose memory is nearest

  friend bool operator==(const Processor&, const Processor&) = default;
};

// The directories in which the kernel describes processors; tests substitute their own.
struct ProcessorPaths {
  std::string nodes = "/sys/devices/system/node";      // nodeN/cpulist
  std::string processors = "/sys/devices/system/cpu";  // cpuN/topology/thread_siblings_list
};

// Returns the processors of these numbers in the order in which memory-bound threads are best
// placed on them: one hardware thread of every core before the second of any, and the NUMA nodes in
// turn. A processor whose node the kernel does not report counts as on node 0.
std::vector<Processor> OrderProcessors(const std::vector<int>& numbers,
                                       const ProcessorPaths& paths = {});

// Returns the processors that the process's main thread may run on, in the order of
// OrderProcessors, whatever processors the calling thread is bound to. Returns none if the kernel
// does not report them.
std::vector<Processor> AllowedProcessors();

// Returns the number of processors that the main thread may run on or, if the kernel does not
// report that, that the machine has; at least 1.
int AvailableProcessors();

// Binds the calling thread to `processor`. Returns false, and leaves the thread as it was, if this
// process may not use that processor, for instance because its control group has changed.
bool BindThisThread(const Processor& processor);

// Returns the number of the processor that the calling thread runs on now, or -1 if that is not
// known.
int CurrentProcessor();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_PROCESSORS_H_
