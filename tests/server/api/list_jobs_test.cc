// ListJobs: pages, filters, orders.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/server/api/service_fixture.h"

namespace megatrain {
namespace {

using ::testing::SizeIs;

class ListJobsTest : public ServiceTest {
 protected:
  grpc::Status List(const std::string& user, const v1::ListJobsRequest& request,
                    v1::ListJobsResponse* response) {
    return jobs_->ListJobs(As(user).get(), request, response);
  }
};

TEST_F(ListJobsTest, PagesHaveEveryJobOnce) {
  std::vector<std::string> created;
  for (int i = 0; i < 7; ++i) created.push_back("jobs/" + Create("anna", absl::StrCat("j", i)));
  for (const bool newest_first : {true, false}) {
    v1::ListJobsRequest request;
    request.set_page_size(3);
    request.set_order_by(newest_first ? "create_time desc" : "create_time");
    std::vector<std::string> seen;
    int pages = 0;
    do {
      v1::ListJobsResponse response;
      ASSERT_EQ(CodeAndReason(List("anna", request, &response)), "OK");
      for (const v1::Job& job : response.jobs()) {
        seen.push_back(job.name());
        EXPECT_FALSE(job.has_file());
      }
      request.set_page_token(response.next_page_token());
      ASSERT_LE(++pages, 3);
    } while (!request.page_token().empty());
    EXPECT_EQ(pages, 3);
    if (newest_first) std::reverse(seen.begin(), seen.end());
    EXPECT_EQ(seen, created);
  }
}

TEST_F(ListJobsTest, PageSizesAreCoercedOrRefused) {
  Create();
  v1::ListJobsRequest request;
  v1::ListJobsResponse response;
  for (const int size : {0, 1000, 1001, 2147483647}) {
    request.set_page_size(size);
    ASSERT_EQ(CodeAndReason(List("anna", request, &response)), "OK");
    EXPECT_THAT(response.jobs(), SizeIs(1));
    EXPECT_EQ(response.next_page_token(), "");
  }
  for (const int size : {-1, -2147483647}) {
    request.set_page_size(size);
    EXPECT_EQ(CodeAndReason(List("anna", request, &response)), "INVALID_ARGUMENT INVALID_FIELD");
  }
}

TEST_F(ListJobsTest, PageTokensGoWithTheirFilterAndOrder) {
  for (int i = 0; i < 3; ++i) Create();
  v1::ListJobsRequest request;
  request.set_page_size(1);
  request.set_filter("state = QUEUED");
  v1::ListJobsResponse response;
  ASSERT_TRUE(List("anna", request, &response).ok());
  request.set_page_token(response.next_page_token());
  ASSERT_NE(request.page_token(), "");
  EXPECT_TRUE(List("anna", request, &response).ok());
  const std::string refused = "INVALID_ARGUMENT INVALID_PAGE_TOKEN";
  v1::ListJobsRequest other = request;
  other.set_filter("state = QUEUED AND user = anna");
  EXPECT_EQ(CodeAndReason(List("anna", other, &response)), refused);
  other = request;
  other.set_order_by("create_time");
  EXPECT_EQ(CodeAndReason(List("anna", other, &response)), refused);
  other = request;
  other.set_page_token("nonsense");
  EXPECT_EQ(CodeAndReason(List("anna", other, &response)), refused);
}

TEST_F(ListJobsTest, FiltersAndOrdersThatAreNotUnderstoodAreRefused) {
  v1::ListJobsRequest request;
  v1::ListJobsResponse response;
  request.set_filter("state = WALKING");
  EXPECT_EQ(CodeAndReason(List("anna", request, &response)), "INVALID_ARGUMENT INVALID_FILTER");
  request.clear_filter();
  request.set_order_by("priority");
  EXPECT_EQ(CodeAndReason(List("anna", request, &response)), "INVALID_ARGUMENT INVALID_FIELD");
}

TEST_F(ListJobsTest, FiltersChoose) {
  const std::string first = Create("anna");
  Create("bob");
  Move(first, JobState::kCancelled);
  v1::ListJobsRequest request;
  request.set_filter("state = CANCELLED OR user = anna");
  v1::ListJobsResponse response;
  ASSERT_TRUE(List("root", request, &response).ok());
  ASSERT_THAT(response.jobs(), SizeIs(1));
  EXPECT_EQ(response.jobs(0).name(), "jobs/" + first);
}

}  // namespace
}  // namespace megatrain
