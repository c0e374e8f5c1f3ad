// What the node tells of itself, over a real connection.
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
