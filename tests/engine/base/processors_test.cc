#include "engine/base/processors.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace megatrain {
namespace {

// A machine of the test's own, as the kernel would describe it.
class ProcessorsTest : public testing::Test {
 protected:
  ProcessorsTest() {
    std::filesystem::remove_all(root_);
    paths_.nodes = root_ + "/node";
    paths_.processors = root_ + "/cpu";
  }
  void Node(int node, const std::string& processors) {
    Write(paths_.nodes + "/node" + std::to_string(node) + "/cpulist", processors);
  }
  void Siblings(int processor, const std::string& processors) {
    Write(paths_.processors + "/cpu" + std::to_string(processor) + "/topology/thread_siblings_list",
          processors);
  }
  static void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << text << "\n";
  }

  const std::string root_ = testing::TempDir() + "processors_test";
  ProcessorPaths paths_;
};

TEST_F(ProcessorsTest, TakesNodesInTurnAndCoresBeforeTheirSecondThreads) {
  Node(0, "0-1,4-5");
  Node(1, "2-3,6-7");
  Write(paths_.nodes + "/has_memory", "0-1");  // no node
  for (int core = 0; core < 4; ++core) {
    const std::string both = std::to_string(core) + "," + std::to_string(core + 4);
    Siblings(core, both);
    Siblings(core + 4, both);
  }
  const std::vector<Processor> all = {{0, 0}, {2, 1}, {1, 0}, {3, 1},
                                      {4, 0}, {6, 1}, {5, 0}, {7, 1}};
  EXPECT_EQ(OrderProcessors({0, 1, 2, 3, 4, 5, 6, 7}, paths_), all);
  // Processor 4 is a core of its own where 0 is not to be used.
  const std::vector<Processor> some = {{1, 0}, {2, 1}, {4, 0}, {6, 1}};
  EXPECT_EQ(OrderProcessors({1, 2, 4, 6}, paths_), some);
}

TEST_F(ProcessorsTest, WithoutADescriptionAllAreOnNodeZero) {
  const std::vector<Processor> expected = {{3, 0}, {5, 0}};
  EXPECT_EQ(OrderProcessors({3, 5}, paths_), expected);
  Node(0, "no list");
  Node(1, "7-x,,5");
  EXPECT_EQ(OrderProcessors({3, 5}, paths_), (std::vector<Processor>{{3, 0}, {5, 1}}));
  EXPECT_TRUE(OrderProcessors({}, paths_).empty());
}

TEST_F(ProcessorsTest, ThoseOfThisMachineAreAllThatThisProcessMayUse) {
  const std::vector<Processor> allowed = AllowedProcessors();
  ASSERT_FALSE(allowed.empty());
  EXPECT_EQ(static_cast<int>(allowed.size()), AvailableProcessors());
}

TEST_F(ProcessorsTest, AThreadIsBoundToOneAndTheOthersAreNot) {
  for (const Processor& processor : AllowedProcessors()) {
    std::thread([&] {
      ASSERT_TRUE(BindThisThread(processor));
      EXPECT_EQ(CurrentProcessor(), processor.number);
      EXPECT_EQ(static_cast<int>(AllowedProcessors().size()), AvailableProcessors());
    }).join();
  }
  EXPECT_FALSE(BindThisThread({1 << 20, 0})) << "no machine has it";
}

}  // namespace
}  // namespace megatrain
