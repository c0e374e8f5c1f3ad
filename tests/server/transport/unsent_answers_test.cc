#include "server/transport/unsent_answers.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/base/error_reason.h"

namespace megatrain {
namespace {

constexpr size_t kExpected = UnsentAnswers::kAnswerBytesExpected;
constexpr int64_t kAnna = 1000, kBob = 1001;

class UnsentAnswersTest : public testing::Test {
 protected:
  // "now", "later", or the reason of the refusal. What goes on later adds its name to `gone_on_`.
  std::string Take(int64_t uid, int connection, const std::string& name, size_t request_bytes = 0) {
    shares_.push_back(std::make_unique<AnswerShare>(&answers_));
    AnswerShare* const share = shares_.back().get();
    share->SetCaller(uid, &connections_[connection]);
    const absl::StatusOr<bool> taken =
        share->Take(request_bytes, [this, name] { gone_on_ += name + " "; });
    if (!taken.ok()) return ReasonOf(taken.status())->reason;
    return *taken ? "now" : "later";
  }

  UnsentAnswers answers_{{.connection_bytes_max = 2 * kExpected,
                          .caller_bytes_max = 3 * kExpected,
                          .waiting_max = 2,
                          .waiting_bytes_max = 100}};
  int connections_[3] = {};
  std::vector<std::unique_ptr<AnswerShare>> shares_;
  std::string gone_on_;
};

TEST_F(UnsentAnswersTest, BoundsAConnection) {
  EXPECT_EQ(Take(kAnna, 0, "a"), "now");
  EXPECT_EQ(Take(kAnna, 0, "b"), "now");
  EXPECT_EQ(Take(kAnna, 0, "c"), "later");
  EXPECT_EQ(Take(kAnna, 1, "d"), "now") << "another connection";
  EXPECT_EQ(Take(kBob, 0, "e"), "now") << "another caller";
  EXPECT_EQ(answers_.bytes(), 4 * kExpected);
  shares_[0]->SetBytes(kExpected / 2);  // made, and shorter than expected
  EXPECT_EQ(gone_on_, "");
  shares_[0]->SetBytes(0);
  EXPECT_EQ(gone_on_, "c ");
}

TEST_F(UnsentAnswersTest, BoundsACallerOnAllConnections) {
  EXPECT_EQ(Take(kAnna, 0, "a"), "now");
  EXPECT_EQ(Take(kAnna, 1, "b"), "now");
  EXPECT_EQ(Take(kAnna, 2, "c"), "now");
  EXPECT_EQ(Take(kAnna, 2, "d"), "later");
  shares_[0]->SetBytes(0);
  EXPECT_EQ(gone_on_, "d ");
}

TEST_F(UnsentAnswersTest, WhoWaitsForAConnectionDoesNotHoldUpAnother) {
  EXPECT_EQ(Take(kAnna, 0, "a"), "now");
  EXPECT_EQ(Take(kAnna, 0, "b"), "now");
  EXPECT_EQ(Take(kAnna, 1, "c"), "now");
  EXPECT_EQ(Take(kAnna, 0, "d"), "later");
  EXPECT_EQ(Take(kAnna, 1, "e"), "later");
  shares_[2]->SetBytes(0);
  EXPECT_EQ(gone_on_, "e ");
}

TEST_F(UnsentAnswersTest, AnAnswerLongerThanTheBoundIsGivenToWhoHasNothingUnsent) {
  EXPECT_EQ(Take(kAnna, 0, "a"), "now");
  shares_[0]->SetBytes(10 * kExpected);
  EXPECT_EQ(Take(kAnna, 0, "b"), "later");
  shares_[0]->SetBytes(0);
  EXPECT_EQ(gone_on_, "b ");
}

TEST_F(UnsentAnswersTest, RefusesMoreThanMayWait) {
  EXPECT_EQ(Take(kAnna, 0, "a"), "now");
  EXPECT_EQ(Take(kAnna, 0, "b"), "now");
  EXPECT_EQ(Take(kAnna, 0, "c", 60), "later");
  EXPECT_EQ(Take(kAnna, 0, "d", 60), "ANSWERS_UNREAD") << "their requests are too long";
  shares_.pop_back();
  EXPECT_EQ(gone_on_, "") << "who was refused has nothing to give back";
  EXPECT_EQ(answers_.bytes(), 2 * kExpected);
  EXPECT_EQ(Take(kAnna, 0, "e", 40), "later");
  EXPECT_EQ(Take(kAnna, 0, "f"), "ANSWERS_UNREAD") << "they are too many";
  shares_.erase(shares_.begin(), shares_.begin() + 2);  // their calls have ended
  EXPECT_EQ(gone_on_, "c e ");
  // Those that have gone on leave their room to others.
  EXPECT_EQ(Take(kAnna, 0, "g", 60), "later");
  shares_.erase(shares_.begin());
  EXPECT_EQ(gone_on_, "c e g ");
}

TEST_F(UnsentAnswersTest, ManyThatGoOnDoNotNest) {
  constexpr int kCalls = 100000;
  UnsentAnswers answers({.waiting_max = kCalls});
  AnswerShare first(&answers);
  first.SetCaller(kAnna, this);
  ASSERT_TRUE(*first.Take(0, [] {}));
  first.SetBytes(100 * kExpected);
  int depth = 0, depth_max = 0, gone_on = 0;
  std::vector<std::unique_ptr<AnswerShare>> shares;
  for (int i = 0; i < kCalls; ++i) {
    AnswerShare* const share = shares.emplace_back(std::make_unique<AnswerShare>(&answers)).get();
    share->SetCaller(kAnna, this);
    ASSERT_FALSE(*share->Take(0, [&, share] {
      depth_max = std::max(depth_max, ++depth);
      ++gone_on;
      share->SetBytes(0);  // answered and sent
      --depth;
    }));
  }
  first.SetBytes(0);
  EXPECT_EQ(gone_on, kCalls);
  EXPECT_EQ(depth_max, 1);
  EXPECT_EQ(answers.bytes(), 0u);
}

}  // namespace
}  // namespace megatrain
