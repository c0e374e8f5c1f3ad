#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/client/commands/program_fixture.h"
#include "tests/client/commands/scripted_server.h"
#include "tests/client/watch/watch_messages.h"

namespace megatrain::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class MetricsCommandTest : public ProgramTest {};

TEST_F(MetricsCommandTest, SaysWhatIsMissingAndWhatNoLongerCounts) {
  ScriptedServer server(directory_.path() + "/scripted.sock");
  server.metrics = [](grpc::ServerContext*,
                      grpc::ServerWriter<v1::StreamStepMetricsResponse>* writer) {
    v1::StreamStepMetricsResponse missed;
    missed.mutable_missed()->set_first_sequence(1);
    missed.mutable_missed()->set_last_sequence(4);
    writer->Write(missed);
    writer->Write(Steps({Step(5, 2)}));
    writer->Write(FellBack(4));
    writer->Write(Steps({Step(5, 3, 3.5)}));
    return grpc::Status::OK;
  };
  variables_["MEGATRAIN_SERVER"] = server.address();
  const Result all = Run({"metrics", "a1"});
  EXPECT_EQ(all.code, kExitDone) << all.err;
  EXPECT_EQ(all.out,
            "    STEP      LOSS  EVAL LOSS  GRAD NORM  LEARNING RATE   TOKENS/S  SECONDS\n"
            "       5    2.0000                 0.750      1.000e-03      8.19k    0.500\n"
            "       5    3.0000     3.5000      0.750      1.000e-03      8.19k    0.500\n");
  EXPECT_THAT(all.err,
              AllOf(HasSubstr("records 1 to 4 are no longer kept"), Not(HasSubstr("fell back"))));
  EXPECT_THAT(Run({"metrics", "a1", "-f"}).err,
              HasSubstr("the job fell back to the checkpoint of step 4"));
}

}  // namespace
}  // namespace megatrain::client
