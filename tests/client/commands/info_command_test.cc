#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/client/commands/program_fixture.h"

namespace megatrain::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class InfoCommandTest : public ProgramTest {};

TEST_F(InfoCommandTest, SaysHowLargeAndHowBusyTheNodeIs) {
  node_.set_hostname("example");
  node_.set_threads(12);
  node_.mutable_device()->set_id("cpu");
  node_.mutable_device()->set_description("8 cores");
  v1::HostPool* const pool = node_.mutable_host_pool();
  pool->set_used_bytes(int64_t{1} << 30);
  pool->set_pinned_bytes(int64_t{2} << 30);
  pool->set_size_bytes(int64_t{8} << 30);
  node_.mutable_state_disk()->set_free_bytes(int64_t{3} << 30);
  node_.mutable_state_disk()->set_size_bytes(int64_t{5} << 30);
  node_.mutable_jobs()->set_running(1);
  node_.mutable_jobs()->set_queued(2);
  node_.mutable_jobs()->set_paused(3);
  EXPECT_THAT(Run({"info"}).out,
              AllOf(HasSubstr("state      STARTING\n"), HasSubstr("host       example\n"),
                    HasSubstr("device     cpu: 8 cores\nthreads    12\n"),
                    HasSubstr("products   not measured yet\n"),
                    HasSubstr("host pool  1.0 GiB used of 8.0 GiB, 2.0 GiB pinned so far\n"),
                    HasSubstr("disk       3.0 GiB free of 5.0 GiB\n"),
                    HasSubstr("jobs       1 running, 2 queued, 3 paused\n")));
  pool->set_pinned_bytes(pool->size_bytes());
  node_.mutable_rates()->set_fp32_update_bytes_per_second(40e9);
  node_.mutable_rates()->set_bf16_update_bytes_per_second(1e12);
  EXPECT_THAT(Run({"info"}).out, AllOf(HasSubstr("host pool  1.0 GiB used of 8.0 GiB\n"),
                                       HasSubstr("optimizer  40 GB/s in FP32, 1 TB/s in BF16\n")));
  EXPECT_EQ(Run({"info", "-q"}).out, "nodes/local\n");
  const nlohmann::json json = Json({"info"});
  EXPECT_EQ(json["server"], options_.listen[0]);
  EXPECT_EQ(json["client_version"], "0.1.0");
  EXPECT_EQ(json["hostname"], "example");
}

TEST_F(InfoCommandTest, OnATerminalLinesAreCut) {
  node_.mutable_device()->set_id("cpu");
  node_.mutable_device()->set_description(std::string(100, 'x'));
  const std::string whole = "device     cpu: " + std::string(100, 'x') + "\n";
  EXPECT_THAT(Run({"info"}).out, HasSubstr(whole));
  is_terminal_ = true;
  EXPECT_THAT(Run({"info"}).out, HasSubstr("device     cpu: " + std::string(63, 'x') + "…\n"));
}

}  // namespace
}  // namespace megatrain::client
