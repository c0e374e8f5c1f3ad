#include "engine/data/sequences/document_bounds.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace megatrain {
namespace {

TEST(DocumentBoundsTest, ADocumentEndsWithItsSequenceAndPaddingIsOne) {
  std::vector<int32_t> starts;
  AppendDocumentStarts({0, 0, 1, -1, -1}, 0, starts);
  AppendDocumentStarts({-1, 2, 2}, 5, starts);
  EXPECT_EQ(starts, (std::vector<int32_t>{0, 2, 3, 5, 6}));
}

TEST(DocumentBoundsTest, EveryTokenHasTheBoundsOfItsDocument) {
  std::vector<int32_t> bounds(10, -1);
  WriteDocumentBounds({0, 2, 3, 5}, bounds.data());
  EXPECT_EQ(bounds, (std::vector<int32_t>{0, 2, 0, 2, 2, 3, 3, 5, 3, 5}));
}

}  // namespace
}  // namespace megatrain
