// The processors that this process may use, and which of the machine's memory is near to each.
#ifndef MEGATRAIN_ENGINE_BASE_PROCESSORS_H_
#define MEGATRAIN_ENGINE_BASE_PROCESSORS_H_

#include <string>
#include <vector>

namespace megatrain {

struct Processor {
  int number = 0;  // as the kernel counts them
  int node = 0;    // the NUMA node whose memory it reaches first

  friend bool operator==(const Processor&, const Processor&) = default;
};

// Where the kernel says it; tests put their own files there.
struct ProcessorPaths {
  std::string nodes = "/sys/devices/system/node";      // nodeN/cpulist
  std::string processors = "/sys/devices/system/cpu";  // cpuN/topology/thread_siblings_list
};

// Those of `numbers`, in the order in which threads that want memory, not arithmetic, are best put
// on them: one of each core before any core's second, the nodes in turn. On node 0 where the kernel
// does not say.
std::vector<Processor> OrderProcessors(const std::vector<int>& numbers,
                                       const ProcessorPaths& paths = {});

// OrderProcessors of those that the process's first thread may run on: the calling one may be bound
// to some of its own. Empty where the kernel does not say.
std::vector<Processor> AllowedProcessors();

// How many there are; at least 1.
int AvailableProcessors();

// Has the calling thread run on this processor alone. False: it is not this process's any more (its
// control group has changed), and the thread runs where it did.
bool BindThisThread(const Processor& processor);

// The number of the processor that the calling thread is on at the moment; -1: not known.
int CurrentProcessor();

}  // namespace megatrain

#endif  // MEGATRAIN_ENGINE_BASE_PROCESSORS_H_
