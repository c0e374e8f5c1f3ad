#include "client/connection/local_token.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "tests/support/test_directory.h"

namespace megatrain::client {
namespace {

constexpr char kGood[] = R"({"token": "t1", "lifetime_seconds": 300})";

// Returns the listening companion socket of `path`.
int ListenBeside(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  (path + ".auth").copy(address.sun_path, sizeof(address.sun_path) - 1);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(listen(listener, 1), 0);
  return listener;
}

// Returns what is fetched from a companion socket that answers so.
absl::StatusOr<LocalToken> FetchGiven(const std::string& answer) {
  const TestDirectory directory(TestDirectory::Place::kShort);
  const std::string path = directory / "m.sock";
  const int listener = ListenBeside(path);
  std::thread companion([&] {
    const int caller = accept(listener, nullptr, nullptr);
    (void)!send(caller, answer.data(), answer.size(), MSG_NOSIGNAL);
    close(caller);
  });
  const absl::StatusOr<LocalToken> token = FetchLocalToken(path);
  companion.join();
  close(listener);
  return token;
}

TEST(LocalTokenTest, ATokenComesWithItsLifetime) {
  // White space before it is a part of the answer, of which 4 KiB are too much.
  for (const std::string& answer : {std::string(kGood), std::string(4000, ' ') + kGood}) {
    const absl::StatusOr<LocalToken> token = FetchGiven(answer);
    ASSERT_TRUE(token.ok()) << token.status();
    EXPECT_EQ(token->token, "t1");
    EXPECT_EQ(token->lifetime, absl::Seconds(300));
  }
}

TEST(LocalTokenTest, ARefusalIsInTheDaemonsWords) {
  const absl::Status status = FetchGiven(R"({"error": "no account of yours"})").status();
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  EXPECT_EQ(status.message(), "no account of yours");
}

TEST(LocalTokenTest, OtherAnswersAreNoToken) {
  for (const std::string& answer :
       {std::string(), std::string("t1"), std::string("[]"), std::string(R"({"token": "t1"})"),
        std::string(R"({"lifetime_seconds": 300})"),
        std::string(R"({"token": 1, "lifetime_seconds": 300})"),
        std::string(R"({"token": "t1", "lifetime_seconds": "300"})"),
        std::string(R"({"token": "t1", "lifetime_seconds": 1.5})"), std::string(R"({"error": 1})"),
        std::string(4096, ' ') + kGood}) {
    const absl::Status status = FetchGiven(answer).status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << answer << ": " << status;
  }
}

TEST(LocalTokenTest, ACompanionThatDoesNotAnswerIsNotWaitedForLonger) {
  const TestDirectory directory(TestDirectory::Place::kShort);
  const std::string path = directory / "m.sock";
  const int listener = ListenBeside(path);
  const absl::Status status = FetchLocalToken(path, absl::Milliseconds(20)).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  close(listener);
}

TEST(LocalTokenTest, WithoutACompanionNoneIsNeeded) {
  const TestDirectory directory(TestDirectory::Place::kShort);
  EXPECT_TRUE(absl::IsNotFound(FetchLocalToken(directory / "m.sock").status()));
  EXPECT_TRUE(absl::IsNotFound(FetchLocalToken(directory / std::string(200, 'a')).status()));
}

}  // namespace
}  // namespace megatrain::client
