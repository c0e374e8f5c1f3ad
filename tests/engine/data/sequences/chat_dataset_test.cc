// Tests of data sets of conversations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "absl/time/civil_time.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "engine/data/sequences/dataset.h"
#include "tests/engine/data/sequences/data_test_support.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

TEST(ChatDatasetTest, ChatsAreMaskedOutsideTheAnswer) {
  TestDirectory directory;
  const std::string path =
      directory.Write("a.jsonl", "{\"instruction\":\"Add\",\"input\":\"1 1\",\"output\":\"2\"}\n");
  JobSpec spec = SpecOf({{path, DataFormat::kAlpaca, ""}}, 100);
  const auto dataset = OpenWithBytes(spec, directory);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto sequence = (*dataset)->TrainSequence(0);
  EXPECT_EQ(TextOf(*sequence),
            "<|im_start|>user\nAdd\n1 1<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n");
  std::string learnt;
  for (const int32_t label : sequence->labels) {
    if (label != kMaskedLabel) learnt += static_cast<char>(label);
  }
  EXPECT_EQ(learnt, "2<|im_end|>");

  spec.data.train_on_prompt = true;
  const auto all = OpenWithBytes(spec, directory);
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ((*all)->TrainSequence(0)->labels[0], '<');
  EXPECT_NE((*all)->fingerprint(), (*dataset)->fingerprint());
}

TEST(ChatDatasetTest, TheTemplatesDayIsPartOfTheDataWhereItIsRead) {
  TestDirectory directory;
  const std::string path = directory.Write("a.jsonl", R"({"instruction": "q", "output": "a"})"
                                                      "\n");
  JobSpec spec = SpecOf({{path, DataFormat::kAlpaca, ""}}, 100);
  spec.data.template_date = "2026-01-31";
  EXPECT_EQ((*OpenWithBytes(spec, directory))->template_date(), "") << "chatml has no day";

  spec.data.chat_template = directory.Write(
      "day.jinja",
      "{{ strftime_now('%d %B %Y') }}{% for m in messages %}|{{ m.content }}{% endfor %}");
  const auto dated = OpenWithBytes(spec, directory);
  ASSERT_TRUE(dated.ok()) << dated.status();
  EXPECT_EQ((*dated)->template_date(), "2026-01-31");
  EXPECT_EQ(TextOf(*(*dated)->TrainSequence(0)), "31 January 2026|q|a");
  spec.data.template_date = "2026-02-01";
  const auto later = OpenWithBytes(spec, directory);
  EXPECT_EQ(TextOf(*(*later)->TrainSequence(0)), "01 February 2026|q|a");
  EXPECT_NE((*later)->fingerprint(), (*dated)->fingerprint());
  spec.data.template_date = "";
  EXPECT_EQ((*OpenWithBytes(spec, directory))->template_date().size(), 10u);
  spec.data.template_date = "2026-02-30";
  EXPECT_THAT(OpenError(spec, directory), HasSubstr("data.template_date: \"2026-02-30\" is not"));
}

TEST(ChatDatasetTest, WithoutADateATemplateHasTheDayOfThePlace) {
  TestDirectory directory;
  const std::string path = directory.Write("a.jsonl", R"({"instruction": "q", "output": "a"})"
                                                      "\n");
  JobSpec spec = SpecOf({{path, DataFormat::kAlpaca, ""}}, 100);
  spec.data.chat_template = directory.Write(
      "day.jinja",
      "{{ strftime_now('%d %B %Y') }}{% for m in messages %}|{{ m.content }}{% endfor %}");
  const char* const zone = std::getenv("TZ");
  const std::string zone_before = zone == nullptr ? "" : zone;
  const bool had_zone = zone != nullptr;
  setenv("TZ", "Fixed/UTC+24:00:00", 1);  // always a day ahead
  const auto tomorrow = [] { return absl::ToCivilDay(absl::Now(), absl::UTCTimeZone()) + 1; };
  const absl::CivilDay first = tomorrow();
  const auto dataset = OpenWithBytes(spec, directory);
  const absl::CivilDay last = tomorrow();  // midnight may have passed
  if (had_zone) {
    setenv("TZ", zone_before.c_str(), 1);
  } else {
    unsetenv("TZ");
  }
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->template_date(),
              ::testing::AnyOf(absl::FormatCivilTime(first), absl::FormatCivilTime(last)));
}

TEST(ChatDatasetTest, TurnsWithoutACertainPlaceAreCounted) {
  TestDirectory directory;
  const std::string record =
      R"({"messages": [{"role": "user", "content": "p"}, {"role": "assistant", "content": "a"},
          {"role": "user", "content": "q"}, {"role": "assistant", "content": "b"}]})";
  std::string line = record;
  std::erase(line, '\n');
  JobSpec spec = SpecOf(
      {{directory.Write("a.jsonl", line + "\n" + line + "\n"), DataFormat::kMessages, ""}}, 100);
  spec.data.packing = false;
  // Writes all answers but the last one in capitals.
  spec.data.chat_template =
      directory.Write("capitals.jinja",
                      "{% for m in messages %}{{ m.content if m.role == 'user' or loop.last else "
                      "m.content | upper }};{% endfor %}");
  for (int round = 0; round < 2; ++round) {  // made, and found in the cache
    const auto dataset = OpenWithBytes(spec, directory);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->train_report().turns_without_loss, 2);
    EXPECT_EQ(TextOf(*(*dataset)->TrainSequence(0)), "p;A;q;b;");
  }
  spec.data.train_on = "last";
  EXPECT_EQ((*OpenWithBytes(spec, directory))->train_report().turns_without_loss, 0);
}

TEST(ChatDatasetTest, PairsOfAnswersAreNotTheConversationsOfTheSameFile) {
  TestDirectory directory;
  const std::string path = directory.Write(
      "a.jsonl", R"({"instruction": "q", "output": "a", "chosen": "b", "rejected": "c"})"
                 "\n");
  JobSpec spec = SpecOf({{path, DataFormat::kAlpaca, ""}}, 400);
  const auto turns = [](const std::string& answer) {
    return "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n" + answer + "<|im_end|>\n";
  };
  const auto conversations = OpenWithBytes(spec, directory);
  ASSERT_TRUE(conversations.ok()) << conversations.status();
  EXPECT_EQ(TextOf(*(*conversations)->TrainSequence(0)), turns("a"));
  spec.training.objective = Objective::kDpo;
  const auto pairs = OpenWithBytes(spec, directory);
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  EXPECT_EQ(TextOf(*(*pairs)->TrainSequence(0)), turns("b") + turns("c"));
}

TEST(ChatDatasetTest, ARecordThatFitsSeveralFormatsIsReadAsTheJobSays) {
  TestDirectory directory;
  const std::string path = directory.Write(
      "a.jsonl", R"({"instruction": "q", "output": "a", "text": "t", "messages": [)"
                 R"({"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}]})"
                 "\n");
  const auto turns = [](const std::string& question, const std::string& answer) {
    return "<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n" + answer +
           "<|im_end|>\n";
  };
  const auto read = [&](DataFormat format) {
    const auto dataset = OpenWithBytes(SpecOf({{path, format, ""}}, 400), directory);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? TextOf(*(*dataset)->TrainSequence(0)) : std::string();
  };
  EXPECT_EQ(read(DataFormat::kAlpaca), turns("q", "a"));
  EXPECT_EQ(read(DataFormat::kMessages), turns("r", "b"));
  EXPECT_EQ(read(DataFormat::kText), "t$");
}

TEST(ChatDatasetTest, WhatATemplateRaisesNamesTheRecord) {
  TestDirectory directory;
  const std::string path = directory.Write("a.jsonl",
                                           "{\"instruction\": \"q\", \"output\": \"a\"}\n"
                                           "{\"instruction\": \"r\", \"output\": \"\"}\n");
  JobSpec spec = SpecOf({{path, DataFormat::kAlpaca, ""}}, 100);
  spec.data.chat_template = directory.Write(
      "raises.jinja",
      "{% for m in messages %}{% if not m.content %}{{ raise_exception('nothing said') }}"
      "{% endif %}{{ m.content }}{% endfor %}");
  EXPECT_EQ(OpenError(spec, directory),
            path + ":2: the chat template refuses the conversation: nothing said");
}

// More words than are looked at at once when the sequences are found.
TEST(ChatDatasetTest, NoConversationOfManyIsCut) {
  TestDirectory directory;
  std::string lines, expected;
  for (int i = 0; i < 5000; ++i) {
    const std::string number = std::to_string(i);
    const std::string answer(static_cast<size_t>(1 + i * 7919 % 150),
                             static_cast<char>('a' + i % 26));
    lines +=
        "{\"instruction\":\"Add\",\"input\":\"" + number + "\",\"output\":\"" + answer + "\"}\n";
    expected += "<|im_start|>user\nAdd\n" + number + "<|im_end|>\n<|im_start|>assistant\n" +
                answer + "<|im_end|>\n";
  }
  ASSERT_GT(expected.size(), size_t{2} << 18);
  const JobSpec spec = SpecOf({{directory.Write("a.jsonl", lines), DataFormat::kAlpaca, ""}}, 512);
  const auto dataset = OpenWithBytes(spec, directory);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::string all;
  for (int64_t i = 0; i < (*dataset)->train_sequences(); ++i) {
    const auto sequence = (*dataset)->TrainSequence(i);
    ASSERT_TRUE(sequence.ok()) << i << ": " << sequence.status();
    const std::string text = TextOf(*sequence);
    ASSERT_TRUE(text.starts_with("<|im_start|>user\n")) << i;
    all += text;
  }
  EXPECT_TRUE(all == expected);
}

}  // namespace
}  // namespace megatrain
