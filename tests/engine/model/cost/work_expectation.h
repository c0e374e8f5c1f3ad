// Compares counts of work, which are whole numbers here.
#ifndef MEGATRAIN_TESTS_ENGINE_MODEL_COST_WORK_EXPECTATION_H_
#define MEGATRAIN_TESTS_ENGINE_MODEL_COST_WORK_EXPECTATION_H_

#include <gtest/gtest.h>

#include <string>

#include "engine/model/cost/layer_work.h"

namespace megatrain {

inline void ExpectWork(const LayerWork& actual, const LayerWork& expected,
                       const std::string& what) {
  EXPECT_DOUBLE_EQ(actual.product_flops, expected.product_flops) << what;
  EXPECT_DOUBLE_EQ(actual.attention_forward_flops, expected.attention_forward_flops) << what;
  EXPECT_DOUBLE_EQ(actual.attention_backward_flops, expected.attention_backward_flops) << what;
  EXPECT_DOUBLE_EQ(actual.device_bytes, expected.device_bytes) << what;
  EXPECT_DOUBLE_EQ(actual.launches, expected.launches) << what;
}

}  // namespace megatrain

#endif  // MEGATRAIN_TESTS_ENGINE_MODEL_COST_WORK_EXPECTATION_H_
