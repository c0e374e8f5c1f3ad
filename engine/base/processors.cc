#include "engine/base/processors.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace megatrain {
namespace {

// The kernel's form of a set: "0-3,8,10-11". What is not of that form counts for nothing.
std::vector<int> ReadList(const std::string& path) {
  std::vector<int> numbers;
  std::string text;
  std::ifstream file(path);
  std::getline(file, text);
  for (const absl::string_view range : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(range, absl::MaxSplits('-', 1));
    int first = 0, last = 0;
    if (!absl::SimpleAtoi(ends.first, &first)) continue;
    last = first;
    if (!ends.second.empty() && !absl::SimpleAtoi(ends.second, &last)) continue;
    for (int number = first; number <= last; ++number) numbers.push_back(number);
  }
  return numbers;
}

// Node by processor.
std::map<int, int> ReadNodes(const std::string& directory) {
  std::map<int, int> nodes;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(directory.c_str()), closedir);
  if (entries == nullptr) return nodes;
  while (const dirent* entry = readdir(entries.get())) {
    absl::string_view name = entry->d_name;
    int node = 0;
    if (!absl::ConsumePrefix(&name, "node") || !absl::SimpleAtoi(name, &node)) continue;
    for (const int number : ReadList(absl::StrCat(directory, "/", entry->d_name, "/cpulist"))) {
      nodes[number] = node;
    }
  }
  return nodes;
}

// The processors that the process's first thread may use; empty where the kernel does not say.
std::vector<int> AllowedNumbers() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> numbers;
  if (sched_getaffinity(getpid(), sizeof(set), &set) != 0) return numbers;
  for (int number = 0; number < CPU_SETSIZE; ++number) {
    if (CPU_ISSET(number, &set)) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

std::vector<Processor> OrderProcessors(const std::vector<int>& numbers,
                                       const ProcessorPaths& paths) {
  const std::map<int, int> nodes = ReadNodes(paths.nodes);
  // (which of its core's, which of its node's such) by processor: nodes come in turn where equal.
  std::vector<std::tuple<int, int, int, int>> order;
  std::map<std::pair<int, int>, int> seen;  // of (node, which of its core's)
  for (const int number : numbers) {
    const auto found = nodes.find(number);
    const int node = found == nodes.end() ? 0 : found->second;
    int sibling = 0;
    for (const int other : ReadList(
             absl::StrCat(paths.processors, "/cpu", number, "/topology/thread_siblings_list"))) {
      sibling +=
          other < number && std::find(numbers.begin(), numbers.end(), other) != numbers.end();
    }
    order.emplace_back(sibling, seen[{node, sibling}]++, node, number);
  }
  std::sort(order.begin(), order.end());
  std::vector<Processor> processors;
  for (const auto& [sibling, turn, node, number] : order) processors.push_back({number, node});
  return processors;
}

std::vector<Processor> AllowedProcessors() { return OrderProcessors(AllowedNumbers()); }

int AvailableProcessors() {
  const int allowed = static_cast<int>(AllowedNumbers().size());
  return allowed > 0 ? allowed : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

bool BindThisThread(const Processor& processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor.number, &set);
  return pthread_setaffinity_np(pthread_self(), sizeof(set), &set) == 0;
}

int CurrentProcessor() { return sched_getcpu(); }

}  // namespace megatrain
