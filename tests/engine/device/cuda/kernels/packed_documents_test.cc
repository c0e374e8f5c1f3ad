// What cuDNN is told of packed documents, and statistics in its order, by the kernels' sources over
// an emulation of blocks and warps.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "engine/device/cuda/kernels/launchers.h"
#include "tests/engine/device/cuda/emulation.h"

namespace megatrain::cuda {
namespace {

class PackedDocumentsTest : public testing::TestWithParam<bool> {
 protected:
  PackedDocumentsTest() { SetReverse(GetParam()); }
  ~PackedDocumentsTest() override { SetReverse(false); }
};
INSTANTIATE_TEST_SUITE_P(Orders, PackedDocumentsTest, testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "Reversed" : "Forward");
});

TEST_P(PackedDocumentsTest, LengthsAndOffsets) {
  PackedDocuments documents{.documents = 3, .tensors = 2};
  const int32_t starts[] = {0, 37, 1061, 1066};
  std::memcpy(documents.starts, starts, sizeof(starts));
  documents.token_strides[0] = 6144;
  documents.token_strides[1] = int64_t{1} << 40;  // offsets have 64 bits
  constexpr char kUntouched = 0x55;
  std::vector<char> index(kPackedIndexBytes, kUntouched);
  ASSERT_EQ(WritePackedIndex(nullptr, documents, index.data()), 0);

  std::vector<char> expected(kPackedIndexBytes, kUntouched);
  const int32_t lengths[] = {37, 1024, 5};
  std::memcpy(expected.data(), lengths, sizeof(lengths));
  for (int t = 0; t < documents.tensors; ++t) {
    int64_t offsets[4];
    for (int d = 0; d < 4; ++d) offsets[d] = starts[d] * documents.token_strides[t];
    std::memcpy(expected.data() + (1 + t) * kPackedArrayBytes, offsets, sizeof(offsets));
  }
  EXPECT_EQ(index, expected) << "and nothing else is written";
}

TEST_P(PackedDocumentsTest, AsManyAsThereMayBe) {
  PackedDocuments documents{.documents = kPackedDocumentsMax, .tensors = kPackedTensorsMax};
  for (int d = 0; d <= kPackedDocumentsMax; ++d) documents.starts[d] = d * (d + 1) / 2;
  for (int t = 0; t < kPackedTensorsMax; ++t) documents.token_strides[t] = 8 * (t + 1);
  std::vector<int64_t> index(kPackedIndexBytes / sizeof(int64_t));
  ASSERT_EQ(WritePackedIndex(nullptr, documents, index.data()), 0);
  const auto* const lengths = reinterpret_cast<const int32_t*>(index.data());
  for (int d = 0; d < kPackedDocumentsMax; ++d) EXPECT_EQ(lengths[d], d + 1);
  for (int t = 0; t < kPackedTensorsMax; ++t) {
    const int64_t* const offsets = &index[(1 + t) * kPackedArrayBytes / sizeof(int64_t)];
    for (int d = 0; d <= kPackedDocumentsMax; ++d) {
      EXPECT_EQ(offsets[d], d * (d + 1) / 2 * 8 * (t + 1));
    }
  }
}

TEST_P(PackedDocumentsTest, MoreAreRefused) {
  PackedDocuments documents{.documents = kPackedDocumentsMax + 1};
  EXPECT_NE(WritePackedIndex(nullptr, documents, nullptr), 0);
  documents = {.tensors = kPackedTensorsMax + 1};
  EXPECT_NE(WritePackedIndex(nullptr, documents, nullptr), 0);
}

TEST_P(PackedDocumentsTest, StatisticsChangeTheirOrder) {
  struct Shape {
    int64_t rows, columns;
  };
  for (const auto [rows, columns] :
       {Shape{1, 1}, Shape{32, 32}, Shape{33, 31}, Shape{5, 100}, Shape{100, 5}, Shape{1, 70}}) {
    // Rows lie farther apart than they are long, on both sides.
    const int64_t from_stride = columns + 3, to_stride = rows + 2;
    std::vector<float> from(rows * from_stride);
    for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<float>(i + 1);
    std::vector<float> to(columns * to_stride, -1.0f), expected = to;
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        expected[c * to_stride + r] = from[r * from_stride + c];
      }
    }
    ASSERT_EQ(
        TransposeStatistics(nullptr, from.data(), rows, columns, from_stride, to.data(), to_stride),
        0);
    EXPECT_EQ(to, expected) << rows << " x " << columns;
  }
  EXPECT_EQ(TransposeStatistics(nullptr, nullptr, 0, 5, 5, nullptr, 5), 0);
}

}  // namespace
}  // namespace megatrain::cuda
