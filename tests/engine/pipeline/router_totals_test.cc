#include "engine/pipeline/router_totals.h"

#include <gtest/gtest.h>

#include <vector>

namespace megatrain {
namespace {

// Two layers of three experts, of which tokens choose two, and a dense one.
ModelLayout Layout() {
  ModelDescription model = UniformModel({.vocabulary = 11,
                                         .hidden = 8,
                                         .layers = 3,
                                         .heads = 1,
                                         .kv_heads = 1,
                                         .head_dim = 8,
                                         .intermediate = 4,
                                         .max_positions = 16});
  for (const size_t layer : {0, 2}) {
    model.layers[layer].feed_forward.intermediate = 0;
    ExpertsDescription& experts = model.layers[layer].experts;
    experts.count = 3;
    experts.chosen = 2;
    experts.intermediate = 4;
    experts.experts_per_tile = 2;
  }
  return BuildModelLayout(model);
}

// The stages are attention, experts, the dense layer, attention, experts.
constexpr int kFirst = 1, kSecond = 4;

TEST(RouterTotalsTest, LoadIsOfAllLayersAndTheBusiestOfOne) {
  RouterTotals totals(Layout(), {4, 2}, 6);
  totals.Add(kFirst, 0, {0, 4, 6, 8}, {}, /*entropy=*/4.0, {});
  totals.Add(kFirst, 1, {0, 2, 2, 4}, {}, 1.0, {});
  totals.Add(kSecond, 0, {0, 0, 4, 8}, {}, 4.0, {});
  totals.Add(kSecond, 1, {0, 0, 2, 4}, {}, 3.0, {});
  const RouterReport report = totals.Report();
  EXPECT_EQ(report.load, (std::vector<double>{6.0 / 24, 8.0 / 24, 10.0 / 24}));
  EXPECT_DOUBLE_EQ(report.busiest, 6.0 / (12.0 / 3));
  EXPECT_DOUBLE_EQ(report.entropy, 12.0 / 12);
  EXPECT_FALSE(report.auxiliary_loss.has_value());
}

// Written out: E sum f P, with f and P pooled over both layers of a micro-batch.
TEST(RouterTotalsTest, AuxiliaryLossAndItsGradientPoolTheLayersOfAMicroBatch) {
  RouterTotals totals(Layout(), {4, 2}, 6);
  totals.Add(kFirst, 0, {0, 4, 6, 8}, {}, 0, {2.0, 1.0, 1.0});
  totals.Add(kFirst, 1, {0, 2, 2, 4}, {}, 0, {1.0, 0.5, 0.5});
  totals.Add(kSecond, 0, {0, 0, 4, 8}, {}, 0, {0.5, 1.5, 2.0});
  totals.Add(kSecond, 1, {0, 0, 2, 4}, {}, 0, {0.25, 0.75, 1.0});
  const double first = 3 * (4.0 / 8 * 2.5 / 8 + 6.0 / 8 * 2.5 / 8 + 6.0 / 8 * 3.0 / 8);
  const double second = 3 * (2.0 / 4 * 1.25 / 4 + 2.0 / 4 * 1.25 / 4 + 4.0 / 4 * 1.5 / 4);
  EXPECT_DOUBLE_EQ(totals.Report().auxiliary_loss.value(), first * 4 / 6 + second * 2 / 6);
  const std::vector<float> gradient = totals.AuxiliaryGradient(1, 0.5);
  ASSERT_EQ(gradient.size(), 3u);
  EXPECT_FLOAT_EQ(gradient[0], 0.5 * 2 / 6 * 3 * (2.0 / 4) / 4);
  EXPECT_FLOAT_EQ(gradient[2], 0.5 * 2 / 6 * 3 * (4.0 / 4) / 4);
}

TEST(RouterTotalsTest, EvenChoicesHaveAnAuxiliaryLossOfTheChosenExperts) {
  RouterTotals totals(Layout(), {3}, 3);
  for (const int stage : {kFirst, kSecond}) totals.Add(stage, 0, {0, 2, 4, 6}, {}, 0, {1, 1, 1});
  EXPECT_DOUBLE_EQ(totals.Report().auxiliary_loss.value(), 2.0);
  EXPECT_DOUBLE_EQ(totals.Report().busiest, 1.0);
}

TEST(RouterTotalsTest, PaddingCountsForNothing) {
  // Two micro-batches of two tokens, and one that is all padding.
  RouterTotals plain(Layout(), {2, 2}, 4), padded(Layout(), {2, 0, 2}, 4);
  for (const int stage : {kFirst, kSecond}) {
    plain.Add(stage, 0, {0, 2, 3, 4}, {}, 1.0, {1.0, 0.5, 0.5});
    plain.Add(stage, 1, {0, 0, 2, 4}, {}, 2.0, {0.25, 0.75, 1.0});
    padded.Add(stage, 0, {0, 3, 6, 8}, {1, 0, 2, 1}, 1.0, {1.0, 0.5, 0.5});
    padded.Add(stage, 1, {0, 2, 2, 4}, {0, 2, 2, 0}, 0.0, {0.0, 0.0, 0.0});
    padded.Add(stage, 2, {0, 0, 2, 4}, {}, 2.0, {0.25, 0.75, 1.0});
  }
  const RouterReport report = padded.Report(), expected = plain.Report();
  EXPECT_EQ(report.load, expected.load);
  EXPECT_EQ(report.busiest, expected.busiest);
  EXPECT_EQ(report.entropy, expected.entropy);
  EXPECT_EQ(report.auxiliary_loss, expected.auxiliary_loss);
  EXPECT_EQ(padded.AuxiliaryGradient(0, 0.5), plain.AuxiliaryGradient(0, 0.5));
  EXPECT_EQ(padded.AuxiliaryGradient(1, 0.5), std::vector<float>(3));
  EXPECT_EQ(padded.AuxiliaryGradient(2, 0.5), plain.AuxiliaryGradient(1, 0.5));
}

// Each of two ranks has one of the two micro-batches.
TEST(RouterTotalsTest, RanksTogetherReportWhatOneWithAllMicroBatchesDoes) {
  for (const bool has_probability : {false, true}) {
    const std::vector<double> probability =
        has_probability ? std::vector<double>{2.0, 1.25, 0.75} : std::vector<double>();
    const auto add_first = [&](RouterTotals& totals, int micro_batch) {
      totals.Add(kFirst, micro_batch, {0, 4, 6, 8}, {}, /*entropy=*/4.0, probability);
      totals.Add(kSecond, micro_batch, {0, 0, 4, 8}, {}, 3.5, probability);
    };
    const auto add_second = [&](RouterTotals& totals, int micro_batch) {
      totals.Add(kFirst, micro_batch, {0, 2, 2, 4}, {}, 1.0, probability);
      totals.Add(kSecond, micro_batch, {0, 0, 2, 4}, {}, 3.0, probability);
    };
    RouterTotals all(Layout(), {4, 2}, 6), first(Layout(), {4}, 6), second(Layout(), {2}, 6);
    add_first(all, 0);
    add_second(all, 1);
    add_first(first, 0);
    add_second(second, 0);
    RouterTotals appended = first, sent = first;
    appended.Append(second);
    sent.ClearMicroBatches();
    sent.AppendNumbers(first.ToNumbers());
    sent.AppendNumbers(second.ToNumbers());
    const RouterReport expected = all.Report();
    for (const RouterReport& report : {appended.Report(), sent.Report()}) {
      EXPECT_EQ(report.load, expected.load);
      EXPECT_EQ(report.busiest, expected.busiest);
      EXPECT_EQ(report.entropy, expected.entropy);
      EXPECT_EQ(report.auxiliary_loss, expected.auxiliary_loss);
    }
    EXPECT_EQ(expected.auxiliary_loss.has_value(), has_probability);
  }
}

TEST(RouterTotalsTest, ADenseModelHasNothingToSum) {
  const ModelDescription dense = UniformModel({.vocabulary = 11,
                                               .hidden = 8,
                                               .layers = 1,
                                               .heads = 1,
                                               .kv_heads = 1,
                                               .head_dim = 8,
                                               .intermediate = 4,
                                               .max_positions = 16});
  const RouterTotals totals(BuildModelLayout(dense), {4}, 4);
}

}  // namespace
}  // namespace megatrain
