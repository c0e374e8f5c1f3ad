// What the node tells of itself, over a real connection.
#include <atomic>
#include <string>

#include "tests/server/api/service_fixture.h"

namespace megatrain {
namespace {

using NodeServiceTest = ServiceTest;

TEST_F(NodeServiceTest, TheNodeIsToldToAnyCallerAndWatched) {
  node_.set_hostname("host");
  node_.mutable_host_pool()->set_size_bytes(100);
  v1::GetNodeRequest get;
  v1::Node node;
  EXPECT_EQ(CodeAndReason(nodes_->GetNode(As("bob").get(), get, &node)),
            "INVALID_ARGUMENT INVALID_FIELD");
  get.set_name("nodes/other");
  EXPECT_EQ(CodeAndReason(nodes_->GetNode(As("bob").get(), get, &node)),
            "NOT_FOUND NODE_NOT_FOUND");
  get.set_name("nodes/local");
  EXPECT_EQ(CodeAndReason(nodes_->GetNode(As("").get(), get, &node)),
            "UNAUTHENTICATED UNAUTHENTICATED_CALLER");
  ASSERT_EQ(CodeAndReason(nodes_->GetNode(As("bob").get(), get, &node)), "OK");
  EXPECT_EQ(node.state(), v1::Node::STARTING);
  EXPECT_EQ(node.host_pool().size_bytes(), 100);
  EXPECT_EQ(node.start_time().seconds(), 1000);

  v1::WatchNodeRequest watch;
  watch.set_name("nodes/local");
  const auto context = As("bob");
  const auto reader = nodes_->WatchNode(context.get(), watch);
  v1::WatchNodeResponse message;
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_EQ(message.node().hostname(), "host");
  ASSERT_TRUE(reader->Read(&message));
  EXPECT_TRUE(message.has_heartbeat());
  context->TryCancel();
  reader->Finish();
}

TEST_F(NodeServiceTest, AWatchIsToldEachChangeOfTheNode) {
  std::atomic<int> threads{1};
  GrpcServerOptions options = options_;
  options.listen = {"unix:" + directory_.path() + "/changing.sock"};
  const auto server =
      ServeApi(options, &authenticator_, manager_.get(), records_.get(), [&threads] {
        v1::Node node;
        node.set_name("nodes/local");
        node.set_threads(threads);
        return node;
      });
  ASSERT_TRUE(server.ok()) << server.status();
  const auto stub = v1::NodeService::NewStub(
      grpc::CreateChannel(options.listen[0], grpc::InsecureChannelCredentials()));
  v1::WatchNodeRequest watch;
  watch.set_name("nodes/local");
  const auto context = As("bob");
  const auto reader = stub->WatchNode(context.get(), watch);
  v1::WatchNodeResponse message;
  for (const int expected : {1, 2, 3}) {
    threads = expected;
    do {
      ASSERT_TRUE(reader->Read(&message)) << expected;
    } while (!message.has_node());
    EXPECT_EQ(message.node().threads(), expected);
  }
  context->TryCancel();
  reader->Finish();
}

TEST_F(NodeServiceTest, AWatchOfAnotherNodeOrOfNoneIsRefused) {
  const auto refusal = [this](const std::string& name) {
    v1::WatchNodeRequest watch;
    watch.set_name(name);
    const auto context = As("bob");
    const auto reader = nodes_->WatchNode(context.get(), watch);
    v1::WatchNodeResponse message;
    const bool told = reader->Read(&message);
    EXPECT_FALSE(told) << name;
    if (told) context->TryCancel();
    return CodeAndReason(reader->Finish());
  };
  EXPECT_EQ(refusal("nodes/other"), "NOT_FOUND NODE_NOT_FOUND");
  EXPECT_EQ(refusal(""), "INVALID_ARGUMENT INVALID_FIELD");
}

}  // namespace
}  // namespace megatrain
