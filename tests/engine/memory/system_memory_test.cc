#include "engine/memory/system_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "engine/base/bytes.h"
#include "engine/memory/host_offer.h"

namespace megatrain {
namespace {

class SystemMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/system_memory_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
    paths_ = {root_ + "/meminfo", root_ + "/cgroup", root_ + "/fs", root_ + "/hugepages"};
    Write("meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n");
  }
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_ + "/" + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }
  std::string root_;
  SystemMemoryPaths paths_;
};

TEST_F(SystemMemoryTest, WithoutGroupsTheKernelsFigureCounts) {
  EXPECT_EQ(*AvailableMemoryBytes(paths_), 8 * kGiB);
}

TEST_F(SystemMemoryTest, TheTightestGroupOfTheV2TreeBinds) {
  Write("cgroup", "0::/user.slice/job.scope\n");
  Write("fs/user.slice/job.scope/memory.max", "max\n");
  Write("fs/user.slice/job.scope/memory.current", "1000\n");
  Write("fs/user.slice/memory.max", "4294967296\n");
  Write("fs/user.slice/memory.current", "3221225472\n");
  Write("fs/user.slice/memory.stat", "anon 1\ninactive_file 1073741824\nactive_file 5\n");
  EXPECT_EQ(*AvailableMemoryBytes(paths_), 2 * kGiB);  // 4 - (3 - 1)
}

TEST_F(SystemMemoryTest, InAContainerTheRootIsTheGroup) {
  Write("cgroup", "0::/not/mounted/here\n");
  Write("fs/memory.max", "1073741824\n");
  Write("fs/memory.current", "2147483648\n");
  EXPECT_EQ(*AvailableMemoryBytes(paths_), 0);  // never negative
}

// The cache may be larger than what is counted as used: the two are read one after the other.
TEST_F(SystemMemoryTest, AGroupLeavesNoMoreThanItsLimit) {
  Write("cgroup", "0::/job\n");
  Write("fs/job/memory.max", "4294967296\n");
  Write("fs/job/memory.current", "1073741824\n");
  Write("fs/job/memory.stat", "inactive_file 3221225472\n");
  EXPECT_EQ(*AvailableMemoryBytes(paths_), 4 * kGiB);
}

TEST_F(SystemMemoryTest, AGroupsNameMayHaveColons) {
  Write("cgroup", "0::/job:1\n");
  Write("fs/job:1/memory.max", "1073741824\n");
  Write("fs/job:1/memory.current", "0\n");
  EXPECT_EQ(*AvailableMemoryBytes(paths_), kGiB);
}

// As systemd's hybrid set-up has it: memory is v1's, and the v2 tree limits nothing.
TEST_F(SystemMemoryTest, BesideAV2GroupV1sLimitBinds) {
  Write("cgroup", "9:cpu,cpuacct:/job\n5:memory:/job\n0::/job\n");
  Write("fs/memory/job/memory.limit_in_bytes", "2147483648\n");
  Write("fs/memory/job/memory.usage_in_bytes", "1073741824\n");
  EXPECT_EQ(*AvailableMemoryBytes(paths_), kGiB);
}

TEST_F(SystemMemoryTest, V1) {
  Write("cgroup", "12:cpuset:/x\n4:memory,hugetlb:/docker/abc\n");
  Write("fs/memory/docker/abc/memory.limit_in_bytes", "3221225472\n");
  Write("fs/memory/docker/abc/memory.usage_in_bytes", "1073741824\n");
  Write("fs/memory/docker/abc/memory.stat", "inactive_file 7\ntotal_inactive_file 536870912\n");
  Write("fs/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("fs/memory/memory.usage_in_bytes", "5\n");
  EXPECT_EQ(*AvailableMemoryBytes(paths_), 2 * kGiB + kGiB / 2);
}

TEST_F(SystemMemoryTest, WithoutMeminfoItIsAnError) {
  paths_.meminfo += ".absent";
  EXPECT_EQ(AvailableMemoryBytes(paths_).status().code(), absl::StatusCode::kNotFound);
  Write("meminfo", "MemTotal: 1 kB\n");
  paths_.meminfo = root_ + "/meminfo";
  EXPECT_EQ(AvailableMemoryBytes(paths_).status().code(), absl::StatusCode::kDataLoss);
}

TEST(SystemMemory, ThisMachineHasSome) { EXPECT_GT(*AvailableMemoryBytes(), 0); }

TEST_F(SystemMemoryTest, HugePagesThatAreSetAsideAndFree) {
  EXPECT_EQ(FreeHugePageBytes(2 * kMiB, paths_), 0);
  Write("hugepages/hugepages-2048kB/free_hugepages", "7\n");
  Write("hugepages/hugepages-1048576kB/free_hugepages", "3\n");
  Write("hugepages/hugepages-2048kB/resv_hugepages", "2\n");
  EXPECT_EQ(FreeHugePageBytes(2 * kMiB, paths_), 10 * kMiB);
  EXPECT_EQ(FreeHugePageBytes(1 * kGiB, paths_), 3 * kGiB);
  Write("hugepages/hugepages-2048kB/resv_hugepages", "9\n");
  EXPECT_EQ(FreeHugePageBytes(2 * kMiB, paths_), 0) << "more are promised than are free";
}

TEST_F(SystemMemoryTest, AnOfferNamesTheSizeOfHugePagesOfWhichThereIsMore) {
  const auto set_aside = [&] {
    const absl::StatusOr<HostOffer> offer = ReadHostOffer(paths_);
    EXPECT_TRUE(offer.ok()) << offer.status();
    EXPECT_EQ(offer->free_bytes, 8 * kGiB);
    return offer->set_aside_bytes;
  };
  EXPECT_EQ(set_aside(), 0);
  Write("hugepages/hugepages-2048kB/free_hugepages", "1024\n");
  Write("hugepages/hugepages-1048576kB/free_hugepages", "15\n");
  EXPECT_EQ(set_aside(), 2 * kGiB);  // a pool takes no fewer than 16 pages
  Write("hugepages/hugepages-1048576kB/free_hugepages", "16\n");
  EXPECT_EQ(set_aside(), 16 * kGiB);
  paths_.meminfo += ".absent";
  EXPECT_EQ(ReadHostOffer(paths_).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace megatrain
