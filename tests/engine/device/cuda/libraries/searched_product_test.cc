// For which sizes the algorithm of a product is searched.
#include <gtest/gtest.h>

#include <set>

#include "engine/device/cuda/libraries/cublas_lt.h"

namespace megatrain {
namespace {

int64_t SearchedRows(int64_t rows) { return SearchedProduct({.m = 7, .n = rows, .k = 9}).n; }

TEST(SearchedProductTest, RowsAreRoundedUpToOneOfFewNumbers) {
  std::set<int64_t> searched;
  for (int64_t rows = 1; rows <= 131072; ++rows) {
    const int64_t found = SearchedRows(rows);
    ASSERT_GE(found, rows);
    ASSERT_LE(found, rows + rows / 8);
    ASSERT_EQ(SearchedRows(found), found);
    searched.insert(found);
  }
  EXPECT_LT(searched.size(), 128u);
}

// The usual chunks of tokens are searched for as they are.
TEST(SearchedProductTest, RoundNumbersStay) {
  for (const int64_t rows : {1, 2, 7, 13, 16, 64, 96, 128, 384, 640, 1024, 1536, 2048, 5120}) {
    EXPECT_EQ(SearchedRows(rows), rows);
  }
  EXPECT_EQ(SearchedRows(17), 18);
  EXPECT_EQ(SearchedRows(1025), 1152);
}

// Sizes that a column's length is of cannot change: columns would overlap.
TEST(SearchedProductTest, OnlyNumbersOfColumnsAreRounded) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      SCOPED_TRACE(testing::Message() << transpose_a << transpose_b);
      CudaProduct product{.m = 1025, .n = 1025, .k = 1025};
      product.transpose_a = transpose_a;
      product.transpose_b = transpose_b;
      const CudaProduct searched = SearchedProduct(product);
      EXPECT_EQ(searched.m, 1025);
      EXPECT_EQ(searched.n, transpose_b ? 1025 : 1152);
      EXPECT_EQ(searched.k, transpose_b && !transpose_a ? 1152 : 1025);
    }
  }
}

}  // namespace
}  // namespace megatrain
