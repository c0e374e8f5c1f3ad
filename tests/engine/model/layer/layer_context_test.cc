#include "engine/model/layer/layer_context.h"

#include <gtest/gtest.h>

#include <cmath>

namespace megatrain {
namespace {

// The numerics' references do not tell: a factor that is not rounded is nearer to those of FP32.
TEST(EmbeddingScaleTest, IsRoundedToTheActivationsTypeIfTheModelDoes) {
  const double scale = std::sqrt(44.0);
  ModelLayout layout;
  LayerContext context;
  context.layout = &layout;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    context.dtype = dtype;
    layout.model.rounds_embedding_scale = false;
    EXPECT_EQ(EmbeddingScale(context, scale), static_cast<float>(scale));
    layout.model.rounds_embedding_scale = true;
    EXPECT_EQ(EmbeddingScale(context, scale),
              dtype == DType::kBF16 ? 6.625f : static_cast<float>(scale));
  }
}

}  // namespace
}  // namespace megatrain
