// Which searches and products cuBLASLt is asked for, by a fake of it.
#include "engine/device/cuda/libraries/cublas_lt.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/engine/device/cuda/libraries/fake_cublas_lt.h"

namespace megatrain {
namespace {

constexpr char kFake[] = "tests/engine/device/cuda/libraries/libcublasLt.so.13";
constexpr int64_t kWidth = 96, kHidden = 40;

class CublasLtTest : public testing::Test {
 protected:
  void SetUp() override {
    // The loader takes the library that is there already for the one of this name.
    library_ = dlopen(kFake, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    calls_ = reinterpret_cast<decltype(&FakeCublasLt)>(dlsym(library_, "FakeCublasLt"))();
    *calls_ = {};
    auto products = CublasLt::Load(/*split_sums=*/true);
    ASSERT_TRUE(products.ok()) << products.status();
    products_ = *std::move(products);
  }
  void TearDown() override {
    products_.reset();
    EXPECT_EQ(calls_->objects, 0);
    dlclose(library_);
  }

  int Run(const CudaProduct& product) { return products_->Product(nullptr, product, nullptr, 0); }

  // By the input of `rows` rows: out = x W^T.
  CudaProduct Forward(int64_t rows) const {
    CudaProduct product{.m = kWidth, .n = rows, .k = kHidden, .dtype = DType::kBF16};
    product.transpose_a = true;
    product.a_stride = product.b_stride = kHidden;
    product.out_stride = kWidth;
    return product;
  }
  // By the weight: a sum over `rows` rows.
  CudaProduct Backward(int64_t rows) const {
    CudaProduct product{.m = kHidden, .n = kWidth, .k = rows, .dtype = DType::kBF16};
    product.transpose_b = true;
    product.a_stride = product.out_stride = kHidden;
    product.b_stride = kWidth;
    return product;
  }

  void* library_ = nullptr;
  FakeCublasLtCalls* calls_ = nullptr;
  std::unique_ptr<CublasLt> products_;
};

TEST_F(CublasLtTest, AnyNumberOfRowsNeedsFewSearches) {
  constexpr int kRows = 5000;
  for (int64_t rows = 1; rows <= kRows; ++rows) {
    ASSERT_EQ(Run(Forward(rows)), 0);
    ASSERT_EQ(calls_->m, kWidth);
    ASSERT_EQ(calls_->n, rows);
    ASSERT_EQ(calls_->k, kHidden);
    ASSERT_GE(calls_->searched_n, rows);
    ASSERT_LE(calls_->searched_n, rows + rows / 8);
    ASSERT_EQ(calls_->searched_k, kHidden);
  }
  EXPECT_EQ(calls_->products, kRows);
  const int of_forward = calls_->searches;
  EXPECT_LT(of_forward, 100);
  for (int64_t rows = kRows; rows > 0; --rows) {
    ASSERT_EQ(Run(Backward(rows)), 0);
    ASSERT_EQ(calls_->n, kWidth);
    ASSERT_EQ(calls_->k, rows);
    ASSERT_GE(calls_->searched_k, rows);
    ASSERT_EQ(calls_->searched_n, kWidth);
  }
  EXPECT_EQ(calls_->searches, 2 * of_forward);
  // Nothing new is kept.
  const int objects = calls_->objects;
  for (int64_t rows = 1; rows <= kRows; ++rows) ASSERT_EQ(Run(Forward(rows)), 0);
  EXPECT_EQ(calls_->searches, 2 * of_forward);
  EXPECT_EQ(calls_->objects, objects);
}

// The algorithm does not depend on which products were run before.
TEST_F(CublasLtTest, TheSearchIsForTheRoundedSizesWhoeverComesFirst) {
  for (const int64_t rows : {1001, 1024, 961}) {
    ASSERT_EQ(Run(Forward(rows)), 0);
    EXPECT_EQ(calls_->searched_n, 1024) << rows;
  }
  EXPECT_EQ(calls_->searches, 1);
}

TEST_F(CublasLtTest, AnAlgorithmThatIsRefusedIsSearchedForTheProductItself) {
  calls_->refuse_others = true;
  ASSERT_EQ(Run(Forward(1001)), 0);
  EXPECT_EQ(calls_->products, 1);
  EXPECT_EQ(calls_->searched_n, 1001);
  ASSERT_EQ(Run(Forward(1024)), 0);
  EXPECT_EQ(calls_->searched_n, 1024);
  EXPECT_EQ(calls_->searches, 2);
}

TEST_F(CublasLtTest, WithoutAnAlgorithmNothingIsRunAndNothingIsKept) {
  const int objects = calls_->objects;
  calls_->find_nothing = true;
  EXPECT_NE(Run(Forward(16)), 0);
  EXPECT_EQ(calls_->products, 0);
  EXPECT_EQ(calls_->objects, objects);
  calls_->find_nothing = false;
  EXPECT_EQ(Run(Forward(16)), 0);
  EXPECT_EQ(calls_->searches, 2);
}

TEST_F(CublasLtTest, EachCallHasItsBias) {
  CudaProduct product = Forward(16);
  const char biases[2] = {};
  for (const char& bias : biases) {
    product.bias = &bias;
    ASSERT_EQ(Run(product), 0);
    EXPECT_EQ(calls_->bias, &bias);
  }
}

TEST_F(CublasLtTest, TheLibraryIsToldTheArithmeticAndAllThatIsAdded) {
  constexpr int64_t kWorkspaceBytes = 4096;
  alignas(256) static char memory[1024];
  CudaProduct product = Forward(16);
  product.out = memory;
  product.alpha = 0.5f;
  ASSERT_EQ(products_->Product(nullptr, product, memory, kWorkspaceBytes), 0);
  EXPECT_TRUE(calls_->strict_fp32);
  EXPECT_TRUE(calls_->may_split_sums);
  EXPECT_TRUE(calls_->parts_are_fp32);
  EXPECT_EQ(calls_->searched_workspace_bytes, static_cast<uint64_t>(kWorkspaceBytes));
  EXPECT_TRUE(calls_->of_bf16);
  EXPECT_FALSE(calls_->is_bf16);
  EXPECT_FALSE(calls_->adds_bias);
  EXPECT_EQ(calls_->alpha, 0.5f);
  EXPECT_EQ(calls_->beta, 0);
  EXPECT_EQ(calls_->c, &memory[0]) << "which is not read";

  // Columns of the result are 384 bytes long, those of the inputs 80.
  product.b = memory + 8;
  product.c = memory + 16;
  product.bias = memory + 512;
  ASSERT_EQ(products_->Product(nullptr, product, memory, kWorkspaceBytes), 0);
  EXPECT_EQ(calls_->searched_alignment_a, 16u);
  EXPECT_EQ(calls_->searched_alignment_b, 8u);
  EXPECT_EQ(calls_->searched_alignment_c, 16u);
  EXPECT_EQ(calls_->beta, 1);
  EXPECT_EQ(calls_->c, &memory[16]);
  EXPECT_TRUE(calls_->adds_bias);
  EXPECT_FALSE(calls_->bias_is_bf16) << "it is of the result's type";
  product.out_dtype = DType::kBF16;
  ASSERT_EQ(products_->Product(nullptr, product, memory, kWorkspaceBytes), 0);
  EXPECT_TRUE(calls_->is_bf16);
  EXPECT_TRUE(calls_->bias_is_bf16);
}

TEST_F(CublasLtTest, SumsAreNotSplitWhereThatIsSetAside) {
  auto whole = CublasLt::Load(/*split_sums=*/false);
  ASSERT_TRUE(whole.ok()) << whole.status();
  ASSERT_EQ((*whole)->Product(nullptr, Forward(16), nullptr, 0), 0);
  EXPECT_FALSE(calls_->may_split_sums);
}

// A range of rows may begin at any of them.
TEST_F(CublasLtTest, AlignmentIsThatOfAllColumns) {
  alignas(256) static const char memory[1024] = {};
  CudaProduct product = Backward(16);  // columns of 80 bytes
  for (int64_t column = 0; column < 4; ++column) {
    product.a = memory + column * kHidden * 2;
    ASSERT_EQ(Run(product), 0);
  }
  EXPECT_EQ(calls_->searched_alignment_a, 16u);
  EXPECT_EQ(calls_->searches, 1);
}

}  // namespace
}  // namespace megatrain
