#include "server/launch/meeting.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kShort = absl::Seconds(1);
constexpr absl::Duration kLong = absl::Minutes(2);

// A port of the loopback interface that nobody has.
int FreePort() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  EXPECT_EQ(bind(socket, reinterpret_cast<sockaddr*>(&address), bytes), 0);
  EXPECT_EQ(getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  close(socket);
  return ntohs(address.sin_port);
}

class MeetingTest : public ::testing::Test {
 protected:
  // A machine with ranks [first, first + count) of `ranks`.
  MeetingPlace Place(int first, int count, int ranks) const {
    return {.job = "job",
            .address = "127.0.0.1",
            .port = port_,
            .ranks = ranks,
            .first_rank = first,
            .local_ranks = count};
  }
  std::unique_ptr<Meeting> Open(const MeetingPlace& place) const {
    absl::StatusOr<std::unique_ptr<Meeting>> meeting = Meeting::Open(place);
    EXPECT_TRUE(meeting.ok()) << meeting.status();
    return *std::move(meeting);
  }

  const int port_ = FreePort();
};

using Given = absl::StatusOr<std::vector<std::string>>;

TEST_F(MeetingTest, EachMachineGetsWhatAllGaveInTheOrderOfTheirRanks) {
  const MeetingPlace places[] = {Place(0, 2, 6), Place(2, 3, 6), Place(5, 1, 6)};
  std::vector<std::unique_ptr<Meeting>> machines;
  for (const MeetingPlace& place : places) machines.push_back(Open(place));
  std::vector<std::string> last(3);
  std::vector<std::thread> threads;
  for (int machine = 2; machine >= 0; --machine) {
    threads.emplace_back([&, machine] {
      Meeting& meeting = *machines[static_cast<size_t>(machine)];
      for (int round = 0; round < 20; ++round) {
        const std::string own = absl::StrCat(round, ".", machine);
        const Given given = meeting.Exchange(own, round == 0 ? kLong : absl::InfiniteDuration());
        ASSERT_TRUE(given.ok()) << given.status();
        EXPECT_THAT(*given, ElementsAre(absl::StrCat(round, ".0"), absl::StrCat(round, ".1"),
                                        absl::StrCat(round, ".2")));
      }
      EXPECT_THAT(meeting.machine_ranks(), ElementsAre(2, 3, 1));
      EXPECT_EQ(meeting.machine(), machine);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(MeetingTest, BytesOfAllKindsAndLengthsArrive) {
  const auto first = Open(Place(0, 1, 2)), second = Open(Place(1, 1, 2));
  const std::string zeros(5, '\0'), large(8 << 20, '\xff');
  Given of_second;
  std::thread thread([&] { of_second = second->Exchange(large, kLong); });
  const Given of_first = first->Exchange(zeros, kLong);
  thread.join();
  ASSERT_TRUE(of_first.ok() && of_second.ok()) << of_first.status() << of_second.status();
  EXPECT_TRUE((*of_first)[0] == zeros && (*of_first)[1] == large);
  EXPECT_TRUE(*of_first == *of_second);
}

TEST_F(MeetingTest, TheFirstMachineMayBeginLater) {
  const auto second = Open(Place(1, 1, 2));
  Given of_second;
  std::thread thread([&] { of_second = second->Exchange("b", kLong); });
  const auto first = Open(Place(0, 1, 2));
  EXPECT_TRUE(first->Exchange("a", kLong).ok());
  thread.join();
  ASSERT_TRUE(of_second.ok()) << of_second.status();
  EXPECT_THAT(*of_second, ElementsAre("a", "b"));
}

TEST_F(MeetingTest, ThoseThatAreMissingAreNamed) {
  const auto first = Open(Place(0, 2, 8)), third = Open(Place(4, 2, 8));
  Given of_third;
  std::thread thread([&] { of_third = third->Exchange("c", kLong); });
  const Given of_first = first->Exchange("a", 3 * kShort);
  thread.join();
  EXPECT_EQ(of_first.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(of_first.status().message(), HasSubstr("ranks 2, 3, 6, 7"));
  EXPECT_THAT(of_first.status().message(), HasSubstr(absl::StrCat("127.0.0.1:", port_)));
  // The one that waited hears it too, and nobody can meet there any more.
  EXPECT_EQ(of_third.status(), of_first.status());
  EXPECT_EQ(Open(Place(2, 2, 8))->Exchange("b", kLong).status(), of_first.status());
}

TEST_F(MeetingTest, AFirstMachineThatIsNotThereIsNamed) {
  const auto second = Open(Place(1, 1, 2));
  const Given given = second->Exchange("b", kShort);
  EXPECT_EQ(given.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(given.status().message(),
              HasSubstr(absl::StrCat("rank 0 cannot be reached at 127.0.0.1:", port_)));
}

TEST_F(MeetingTest, AnotherJobIsRefusedAndDisturbsNobody) {
  const auto first = Open(Place(0, 1, 2)), second = Open(Place(1, 1, 2));
  MeetingPlace other = Place(1, 1, 2);
  other.job = "another";
  const auto stranger = Open(other);
  const Given refused = stranger->Exchange("x", kLong);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr(R"(is "job", and not "another";)"));
  stranger->LeaveFailed();
  Given of_second;
  std::thread thread([&] { of_second = second->Exchange("b", kLong); });
  EXPECT_TRUE(first->Exchange("a", kLong).ok());
  thread.join();
  EXPECT_TRUE(of_second.ok()) << of_second.status();
}

struct Misfit {
  int first, count, ranks;
  const char* said;
};

TEST_F(MeetingTest, RanksThatDoNotGoTogetherAreRefused) {
  for (const Misfit& c : {Misfit{2, 2, 5, "ranks 2 to 3 of 5"},
                          {3, 2, 4, "ranks 3 to 4 of 4"},
                          {1, 2, 4, "two machines have the same ranks"},
                          {1, 1, 4, "two machines have the same ranks"}}) {
    SCOPED_TRACE(c.said);
    const auto first = Open(Place(0, 2, 4)), other = Open(Place(c.first, c.count, c.ranks));
    Given of_first;
    std::thread thread([&] { of_first = first->Exchange("a", kLong); });
    const Given of_other = other->Exchange("b", kLong);
    thread.join();
    for (const Given& given : {of_first, of_other}) {
      EXPECT_EQ(given.status().code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(given.status().message(), HasSubstr(c.said));
    }
  }
}

TEST_F(MeetingTest, AMachineThatLeavesEndsItsWaitAndThatOfTheOthers) {
  const auto first = Open(Place(0, 1, 3)), second = Open(Place(1, 1, 3));
  Given of_first, of_second;
  std::thread one([&] { of_first = first->Exchange("a", absl::InfiniteDuration()); });
  std::thread two([&] { of_second = second->Exchange("b", kLong); });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // most often both wait
  second->Leave();
  one.join();
  two.join();
  EXPECT_EQ(of_second.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(second->Exchange("b", kLong).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(of_first.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(of_first.status().message(), HasSubstr("the launcher of rank 1 has ended"));
}

TEST_F(MeetingTest, AMachineThatHasFailedEndsTheExchangesOfTheOthers) {
  const auto first = Open(Place(0, 1, 3)), second = Open(Place(1, 2, 3));
  Given met;
  std::thread thread([&] { met = second->Exchange("b", kLong); });
  ASSERT_TRUE(first->Exchange("a", kLong).ok());
  thread.join();
  ASSERT_TRUE(met.ok()) << met.status();
  Given of_first;
  std::thread next([&] { of_first = first->Exchange("a", kLong); });
  second->LeaveFailed();
  next.join();
  EXPECT_EQ(of_first.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(of_first.status().message(), HasSubstr("the launcher of ranks 1 to 2 has ended"));
  EXPECT_EQ(second->Exchange("b", kLong).status().code(), absl::StatusCode::kCancelled);
}

// Its launcher was started anew sooner than that of rank 0.
TEST_F(MeetingTest, AMachineOfALaterAttemptIsNotTakenAndDisturbsNobody) {
  const auto first = Open(Place(0, 1, 2)), second = Open(Place(1, 1, 2));
  Given of_second;
  std::thread thread([&] { of_second = second->Exchange("b", kLong); });
  ASSERT_TRUE(first->Exchange("a", kLong).ok());
  thread.join();
  ASSERT_TRUE(of_second.ok()) << of_second.status();
  const Given late = Open(Place(1, 1, 2))->Exchange("c", kShort);
  EXPECT_EQ(late.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(late.status().message(), HasSubstr("has begun without this machine"));
  std::thread again([&] { of_second = second->Exchange("d", kLong); });
  const Given of_first = first->Exchange("e", kLong);
  again.join();
  ASSERT_TRUE(of_first.ok() && of_second.ok()) << of_first.status() << of_second.status();
  EXPECT_THAT(*of_first, ElementsAre("e", "d"));
}

// Refuses twice, as the first machine of the attempt before does until it has ended.
class LateTable final : public launch::v1::Meeting::Service {
 public:
  grpc::Status Exchange(grpc::ServerContext*, const launch::v1::ExchangeRequest* request,
                        launch::v1::ExchangeReply* reply) override {
    if (++calls_ < 3) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "not yet");
    *reply->add_machines() = request->own();
    return grpc::Status::OK;
  }
  int calls() const { return calls_; }

 private:
  std::atomic<int> calls_ = 0;
};

TEST_F(MeetingTest, AMachineThatIsNotTakenYetAsksAgain) {
  LateTable table;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(absl::StrCat("127.0.0.1:", port_), grpc::InsecureServerCredentials());
  builder.RegisterService(&table);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const Given given = Open(Place(1, 1, 2))->Exchange("b", kLong);
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_THAT(*given, ElementsAre("b"));
  EXPECT_EQ(table.calls(), 3);
}

TEST_F(MeetingTest, AFirstMachineThatEndsIsMissed) {
  auto first = Open(Place(0, 1, 2));
  const auto second = Open(Place(1, 1, 2));
  Given of_second;
  std::thread thread([&] { of_second = second->Exchange("b", kLong); });
  ASSERT_TRUE(first->Exchange("a", kLong).ok());
  thread.join();
  ASSERT_TRUE(of_second.ok());
  first.reset();
  EXPECT_EQ(second->Exchange("b", absl::InfiniteDuration()).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(MeetingTest, APortInUseIsRefused) {
  const auto first = Open(Place(0, 1, 2));
  const absl::StatusOr<std::unique_ptr<Meeting>> again = Meeting::Open(Place(0, 1, 2));
  EXPECT_EQ(again.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(again.status().message(), HasSubstr(absl::StrCat("127.0.0.1:", port_)));
  EXPECT_THAT(again.status().message(), HasSubstr("--master-port"));
}

}  // namespace
}  // namespace megatrain
