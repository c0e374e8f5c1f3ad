#include "engine/data/sequences/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace megatrain {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kPad = 9999;

struct Document {
  bool whole = false;
  std::vector<int32_t> ids;
  std::vector<bool> target;
};

// The document's `length` ids are first, first + 1, ...; of a chat the last `targets` are learnt.
Document Text(int32_t first, int length) {
  Document document;
  for (int i = 0; i < length; ++i) document.ids.push_back(first + i);
  document.target.assign(static_cast<size_t>(length), true);
  return document;
}
Document Chat(int32_t first, int length, int targets) {
  Document document = Text(first, length);
  document.whole = true;
  for (int i = 0; i < length - targets; ++i) document.target[static_cast<size_t>(i)] = false;
  return document;
}

struct Packed {
  std::vector<Sequence> sequences;
  PackingCounts counts;
};

Packed Pack(const std::vector<Document>& documents, int64_t length, bool packing, size_t piece,
            bool pairs = false) {
  std::vector<uint32_t> words;
  for (const Document& document : documents) {
    for (size_t i = 0; i < document.ids.size(); ++i) {
      words.push_back(static_cast<uint32_t>(document.ids[i]) |
                      (document.target[i] ? kTargetBit : 0) | (i == 0 ? kDocumentBit : 0) |
                      (i == 0 && document.whole ? kWholeBit : 0));
    }
  }
  const PackingOptions options = {length, packing, pairs};
  std::vector<uint64_t> begins;
  SequencePacker packer(options, [&](uint64_t word) {
    begins.push_back(word);
    return absl::OkStatus();
  });
  for (size_t at = 0; at < words.size(); at += piece) {
    EXPECT_TRUE(packer.Append(absl::MakeConstSpan(words).subspan(at, piece)).ok());
  }
  EXPECT_TRUE(packer.Finish().ok());
  Packed packed;
  packed.counts = packer.counts();
  EXPECT_EQ(packed.counts.sequences, static_cast<int64_t>(begins.size()));
  for (size_t i = 0; i < begins.size(); ++i) {
    const uint64_t end = i + 1 < begins.size() ? begins[i + 1] : words.size();
    Sequence sequence;
    const absl::Status status = FillPackedSequence(
        options,
        [&](int64_t first, int64_t count, uint32_t* to) {
          std::copy_n(words.begin() + first, count, to);
          return absl::OkStatus();
        },
        static_cast<int64_t>(begins[i]), static_cast<int64_t>(end), kPad, &sequence);
    EXPECT_TRUE(status.ok()) << status;
    packed.sequences.push_back(sequence);
  }
  return packed;
}

// INTERFACES' words done plainly, a sequence at a time with lists of everything.
Packed PackPlainly(const std::vector<Document>& documents, int64_t length, bool packing) {
  struct Open {
    std::vector<int32_t> ids, labels, positions, document;
  };
  std::vector<Open> open;
  Packed packed;
  const size_t capacity = static_cast<size_t>(length);
  bool fresh = true;
  const auto add = [&](const Document& from, size_t begin, size_t end) {
    Open& to = open.back();
    const int32_t number = to.document.empty() ? 0 : to.document.back() + 1;
    for (size_t i = begin; i < end; ++i) {
      to.ids.push_back(from.ids[i]);
      to.labels.push_back(from.target[i] && !(i == begin && number > 0) ? from.ids[i]
                                                                        : kMaskedLabel);
      to.positions.push_back(static_cast<int32_t>(i - begin));
      to.document.push_back(number);
    }
    packed.counts.tokens += static_cast<int64_t>(end - begin);
  };
  for (const Document& document : documents) {
    if (!packing) fresh = true;
    if (document.whole) {
      const size_t kept = std::min(document.ids.size(), capacity);
      if (kept < document.ids.size()) ++packed.counts.truncated_examples;
      if (std::count(document.target.begin() + 1,
                     document.target.begin() + static_cast<ptrdiff_t>(kept), true) == 0) {
        ++packed.counts.examples_without_target;
        continue;
      }
      if (fresh || open.back().ids.size() + kept > capacity) open.emplace_back();
      fresh = false;
      add(document, 0, kept);
    } else {
      for (size_t at = 0; at < document.ids.size();) {
        if (fresh || open.back().ids.size() == capacity) open.emplace_back();
        fresh = false;
        const size_t end = std::min(document.ids.size(), at + capacity - open.back().ids.size());
        add(document, at, end);
        at = end;
      }
    }
  }
  for (Open& from : open) {
    if (std::count(from.positions.begin(), from.positions.end(), 0) == std::ssize(from.positions)) {
      // Every document in it is one token, which nothing predicts.
      ++packed.counts.examples_without_target;
      packed.counts.tokens -= std::ssize(from.ids);
      continue;
    }
    Sequence sequence;
    int32_t padding = 0;
    while (from.ids.size() < capacity) {
      from.ids.push_back(kPad);
      from.labels.push_back(kMaskedLabel);
      from.positions.push_back(padding++);
      from.document.push_back(-1);
    }
    packed.sequences.push_back({from.ids, from.labels, from.positions, from.document, false, {}});
  }
  packed.counts.sequences = std::ssize(packed.sequences);
  return packed;
}

void ExpectEqual(const Packed& a, const Packed& b) {
  ASSERT_EQ(a.sequences.size(), b.sequences.size());
  EXPECT_EQ(a.counts.sequences, b.counts.sequences);
  for (size_t i = 0; i < a.sequences.size(); ++i) {
    EXPECT_EQ(a.sequences[i].input_ids, b.sequences[i].input_ids) << i;
    EXPECT_EQ(a.sequences[i].labels, b.sequences[i].labels) << i;
    EXPECT_EQ(a.sequences[i].position_ids, b.sequences[i].position_ids) << i;
    EXPECT_EQ(a.sequences[i].document_ids, b.sequences[i].document_ids) << i;
  }
  EXPECT_EQ(a.counts.tokens, b.counts.tokens);
  EXPECT_EQ(a.counts.truncated_examples, b.counts.truncated_examples);
  EXPECT_EQ(a.counts.examples_without_target, b.counts.examples_without_target);
}

TEST(PackingTest, TextFillsAndContinuesAtPositionZero) {
  const Packed packed = Pack({Text(10, 3), Text(20, 7)}, 4, true, 100);
  ASSERT_EQ(packed.sequences.size(), 3u);
  EXPECT_THAT(packed.sequences[0].input_ids, ElementsAre(10, 11, 12, 20));
  EXPECT_THAT(packed.sequences[0].labels, ElementsAre(10, 11, 12, -100));
  EXPECT_THAT(packed.sequences[0].position_ids, ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(packed.sequences[0].document_ids, ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(packed.sequences[1].input_ids, ElementsAre(21, 22, 23, 24));
  EXPECT_THAT(packed.sequences[1].labels, ElementsAre(21, 22, 23, 24));
  EXPECT_THAT(packed.sequences[1].position_ids, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(packed.sequences[2].input_ids, ElementsAre(25, 26, kPad, kPad));
  EXPECT_THAT(packed.sequences[2].labels, ElementsAre(25, 26, -100, -100));
  EXPECT_THAT(packed.sequences[2].position_ids, ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(packed.sequences[2].document_ids, ElementsAre(0, 0, -1, -1));
  EXPECT_EQ(packed.counts.tokens, 10);
}

TEST(PackingTest, ChatsAreNeverSplit) {
  const Packed packed = Pack({Chat(10, 3, 1), Chat(20, 2, 1), Chat(30, 2, 1)}, 4, true, 100);
  ASSERT_EQ(packed.sequences.size(), 2u);
  EXPECT_THAT(packed.sequences[0].input_ids, ElementsAre(10, 11, 12, kPad));
  EXPECT_THAT(packed.sequences[0].labels, ElementsAre(-100, -100, 12, -100));
  EXPECT_THAT(packed.sequences[1].input_ids, ElementsAre(20, 21, 30, 31));
  EXPECT_THAT(packed.sequences[1].labels, ElementsAre(-100, 21, -100, 31));
  EXPECT_THAT(packed.sequences[1].document_ids, ElementsAre(0, 0, 1, 1));
}

// Next-fit does not look back: what was closed stays closed.
TEST(PackingTest, AClosedSequenceIsNotFilledLater) {
  const Packed packed = Pack({Chat(10, 2, 1), Chat(20, 3, 1), Chat(30, 2, 1)}, 4, true, 100);
  ASSERT_EQ(packed.sequences.size(), 3u);
}

TEST(PackingTest, LongChatsAreCutAndChatsWithoutTargetPassedOver) {
  const Packed packed = Pack(
      {Chat(10, 6, 4), Chat(20, 6, 2), Chat(30, 2, 0), Chat(40, 3, 1), Chat(50, 1, 1)}, 4, true, 1);
  ASSERT_EQ(packed.sequences.size(), 2u);
  EXPECT_THAT(packed.sequences[0].input_ids, ElementsAre(10, 11, 12, 13));
  EXPECT_THAT(packed.sequences[0].labels, ElementsAre(-100, -100, 12, 13));
  EXPECT_THAT(packed.sequences[1].input_ids, ElementsAre(40, 41, 42, kPad));
  EXPECT_EQ(packed.counts.truncated_examples, 2);       // 10, 20
  EXPECT_EQ(packed.counts.examples_without_target, 3);  // 20 (cut off), 30, 50 (first token)
}

TEST(PackingTest, WithoutPackingADocumentASequence) {
  const Packed packed = Pack({Text(10, 2), Text(20, 6), Chat(30, 2, 1)}, 4, false, 100);
  ASSERT_EQ(packed.sequences.size(), 4u);
  EXPECT_THAT(packed.sequences[0].input_ids, ElementsAre(10, 11, kPad, kPad));
  EXPECT_THAT(packed.sequences[1].input_ids, ElementsAre(20, 21, 22, 23));
  EXPECT_THAT(packed.sequences[2].input_ids, ElementsAre(24, 25, kPad, kPad));
  EXPECT_THAT(packed.sequences[3].input_ids, ElementsAre(30, 31, kPad, kPad));
}

// A step whose sequences have nothing to predict has no loss to divide.
TEST(PackingTest, TextsWithoutAPredictionAreLeftOut) {
  for (const size_t piece : {1, 100}) {
    const Packed rest = Pack({Text(10, 5)}, 4, true, piece);
    ASSERT_EQ(rest.sequences.size(), 1u);
    EXPECT_THAT(rest.sequences[0].input_ids, ElementsAre(10, 11, 12, 13));
    EXPECT_EQ(rest.counts.tokens, 4);
    EXPECT_EQ(rest.counts.examples_without_target, 1);
    const Packed followed = Pack({Text(10, 5), Text(20, 2)}, 4, true, piece);
    ASSERT_EQ(followed.sequences.size(), 2u);
    EXPECT_THAT(followed.sequences[1].input_ids, ElementsAre(14, 20, 21, kPad));
    EXPECT_EQ(followed.counts.tokens, 7);
    EXPECT_EQ(followed.counts.examples_without_target, 0);
    // An empty text is the end of a text alone.
    const Packed apart = Pack({Text(10, 1), Text(20, 3), Text(30, 1)}, 4, false, piece);
    ASSERT_EQ(apart.sequences.size(), 1u);
    EXPECT_THAT(apart.sequences[0].input_ids, ElementsAre(20, 21, 22, kPad));
    EXPECT_EQ(apart.counts.tokens, 3);
    EXPECT_EQ(apart.counts.examples_without_target, 2);
  }
}

TEST(PackingTest, TextsOfOneTokenNeedALongerNeighbour) {
  for (const size_t piece : {1, 100}) {
    const Packed alone = Pack({Text(10, 1), Text(20, 1)}, 4, true, piece);
    EXPECT_EQ(alone.sequences.size(), 0u);
    EXPECT_EQ(alone.counts.tokens, 0);
    EXPECT_GT(alone.counts.examples_without_target, 0);
    const Packed too_long = Pack({Text(10, 1), Text(20, 1), Chat(30, 4, 2)}, 4, true, piece);
    ASSERT_EQ(too_long.sequences.size(), 1u);
    EXPECT_THAT(too_long.sequences[0].input_ids, ElementsAre(30, 31, 32, 33));
    EXPECT_EQ(too_long.counts.tokens, 4);
    EXPECT_GT(too_long.counts.examples_without_target, 0);
    const Packed fits = Pack({Text(10, 1), Text(20, 1), Chat(30, 2, 1)}, 4, true, piece);
    ASSERT_EQ(fits.sequences.size(), 1u);
    EXPECT_THAT(fits.sequences[0].input_ids, ElementsAre(10, 20, 30, 31));
    EXPECT_EQ(fits.counts.tokens, 4);
    EXPECT_EQ(fits.counts.examples_without_target, 0);
  }
}

TEST(PackingTest, EverySequenceHasAPrediction) {
  std::mt19937 random(20261128);
  int64_t left_out = 0;
  for (int round = 0; round < 400; ++round) {
    std::vector<Document> documents;
    for (int i = 0; i < 12; ++i) {
      // Mostly of one token.
      const int size = random() % 3 == 0 ? 1 + static_cast<int>(random() % 9) : 1;
      documents.push_back(random() % 5 == 0 ? Chat(100 * i, size + 1, 1) : Text(100 * i, size));
    }
    const int64_t length = 2 + static_cast<int64_t>(random() % 5);
    const Packed packed = Pack(documents, length, /*packing=*/round % 2 == 0, 1 + random() % 7);
    int64_t tokens = 0;
    for (const Sequence& sequence : packed.sequences) {
      const std::vector<int32_t> targets = PredictionTargets(sequence);
      EXPECT_NE(std::count(targets.begin(), targets.end(), kMaskedLabel), std::ssize(targets));
      tokens += std::ssize(sequence.document_ids) -
                std::count(sequence.document_ids.begin(), sequence.document_ids.end(), -1);
    }
    EXPECT_EQ(packed.counts.tokens, tokens);
    left_out += packed.counts.examples_without_target;
  }
  EXPECT_GT(left_out, 0);
}

TEST(PackingTest, IsTheSameAsDoneWithPlainLists) {
  std::mt19937 random(20240607);
  for (int round = 0; round < 600; ++round) {
    const int64_t length = std::uniform_int_distribution<int64_t>(2, 20)(random);
    const int kind = round % 3;  // text, chats, both
    std::vector<Document> documents;
    const int count = std::uniform_int_distribution<int>(1, 20)(random);
    for (int i = 0; i < count; ++i) {
      const int size = std::uniform_int_distribution<int>(1, 50)(random) / (round % 7 + 1) + 1;
      const bool whole = kind == 1 || (kind == 2 && random() % 2 == 0);
      Document document = whole ? Chat(100 * i, size, 0) : Text(100 * i, size);
      if (whole) {
        for (size_t t = 0; t < document.target.size(); ++t) document.target[t] = random() % 4 == 0;
      }
      documents.push_back(document);
    }
    const bool packing = round % 2 == 0;
    ExpectEqual(Pack(documents, length, packing, 1 + random() % 13),
                PackPlainly(documents, length, packing));
  }
}

TEST(PredictionTargetsTest, StayInsideDocuments) {
  const Packed packed = Pack({Text(10, 3), Chat(20, 4, 2), Text(30, 2)}, 10, true, 100);
  EXPECT_THAT(PredictionTargets(packed.sequences[0]),
              ElementsAre(11, 12, -100, -100, 22, 23, -100, 31, -100, -100));
  EXPECT_THAT(PredictionTargets(WholeSequence({5, 6, 7})), ElementsAre(6, 7, -100));
}

// A document of `length` words of which the last is learnt.
void AppendWhole(int length, std::vector<uint32_t>* words) {
  for (int i = 0; i < length; ++i) {
    words->push_back(static_cast<uint32_t>(i) | (i == 0 ? kDocumentBit | kWholeBit : 0) |
                     (i + 1 == length ? kTargetBit : 0));
  }
}

TEST(PackingTest, ErrorsOfTheCallbackAndHalfAPairAreTold) {
  std::vector<uint32_t> words;
  AppendWhole(3, &words);
  const auto full = [](uint64_t) { return absl::ResourceExhaustedError("full"); };
  SequencePacker at_the_end({4, true, false}, full);
  EXPECT_TRUE(at_the_end.Append(words).ok()) << "the document may go on";
  EXPECT_EQ(at_the_end.Finish().message(), "full");
  SequencePacker at_the_next({4, true, false}, full);
  EXPECT_TRUE(at_the_next.Append(words).ok());
  EXPECT_EQ(at_the_next.Append(words).message(), "full");
  SequencePacker half({8, true, true}, [](uint64_t) { return absl::OkStatus(); });
  EXPECT_TRUE(half.Append(words).ok());
  EXPECT_EQ(half.Finish().code(), absl::StatusCode::kInternal);
}

// An index of another stream must not be followed beyond the sequence.
TEST(PackingTest, PlacesThatDoNotFitTheStreamAreRefused) {
  std::vector<uint32_t> words;
  for (const int length : {2, 2, 3, 3}) AppendWhole(length, &words);
  const auto fill = [&words](const PackingOptions& options, int64_t begin, int64_t end) {
    Sequence sequence;
    return FillPackedSequence(
        options,
        [&](int64_t first, int64_t count, uint32_t* to) {
          std::copy_n(words.begin() + first, count, to);
          return absl::OkStatus();
        },
        begin, end, kPad, &sequence);
  };
  const PackingOptions chats = {4, true, false}, pairs = {8, true, true};
  EXPECT_TRUE(fill(chats, 0, 4).ok());
  EXPECT_EQ(fill(chats, 2, 7).code(), absl::StatusCode::kInternal) << "5 tokens";
  EXPECT_TRUE(fill(pairs, 0, 4).ok());
  EXPECT_EQ(fill(pairs, 0, 10).code(), absl::StatusCode::kInternal) << "10 tokens";
  EXPECT_EQ(fill(pairs, 0, 2).code(), absl::StatusCode::kInternal) << "half a pair";
  Sequence sequence;
  const absl::Status unread = FillPackedSequence(
      chats, [](int64_t, int64_t, uint32_t*) { return absl::DataLossError("damaged"); }, 0, 4, kPad,
      &sequence);
  EXPECT_EQ(unread.code(), absl::StatusCode::kDataLoss);
}

// Pairs of answers: each is cut to half a sequence, both stay together, and a pair of which one
// answer has nothing to learn is left out.
TEST(PackingTest, PairsStayTogether) {
  const std::vector<Document> documents = {
      Chat(0, 3, 1),   Chat(10, 2, 1),   // 5 tokens
      Chat(20, 4, 2),  Chat(30, 3, 1),   // 7: a new sequence
      Chat(40, 9, 7),  Chat(50, 2, 1),   // the first is cut to 5
      Chat(60, 9, 3),  Chat(70, 2, 1),   // what is cut off is all that it has
      Chat(80, 2, 0),  Chat(90, 2, 1),   // nothing to learn
      Chat(100, 2, 1), Chat(110, 1, 1),  // nothing predicts the only token
      Chat(120, 2, 1), Chat(130, 2, 1),
  };
  const int32_t m = kMaskedLabel;
  for (const size_t piece : {1, 5, 1000}) {
    const Packed packed = Pack(documents, 10, /*packing=*/true, piece, /*pairs=*/true);
    EXPECT_EQ(packed.counts.truncated_examples, 2);
    EXPECT_EQ(packed.counts.examples_without_target, 3);
    EXPECT_EQ(packed.counts.tokens, 5 + 7 + 7 + 4);
    ASSERT_EQ(packed.sequences.size(), 4u);
    EXPECT_THAT(packed.sequences[0].input_ids,
                ElementsAre(0, 1, 2, 10, 11, kPad, kPad, kPad, kPad, kPad));
    EXPECT_THAT(packed.sequences[0].labels, ElementsAre(m, m, 2, m, 11, m, m, m, m, m));
    EXPECT_THAT(packed.sequences[0].document_ids, ElementsAre(0, 0, 0, 1, 1, -1, -1, -1, -1, -1));
    EXPECT_THAT(packed.sequences[0].position_ids, ElementsAre(0, 1, 2, 0, 1, 0, 1, 2, 3, 4));
    EXPECT_THAT(packed.sequences[2].input_ids,
                ElementsAre(40, 41, 42, 43, 44, 50, 51, kPad, kPad, kPad));
    EXPECT_THAT(packed.sequences[3].input_ids,
                ElementsAre(120, 121, 130, 131, kPad, kPad, kPad, kPad, kPad, kPad));
    for (const Sequence& sequence : packed.sequences) EXPECT_TRUE(sequence.pairs);
  }
  EXPECT_EQ(Pack(documents, 20, true, 7, true).sequences.size(), 3u);
  const Packed apart = Pack(documents, 20, /*packing=*/false, 7, true);
  ASSERT_EQ(apart.sequences.size(), 5u);
  EXPECT_EQ(apart.counts.truncated_examples, 0);
  EXPECT_THAT(std::vector<int32_t>(apart.sequences[3].input_ids.begin(),
                                   apart.sequences[3].input_ids.begin() + 11),
              ElementsAre(60, 61, 62, 63, 64, 65, 66, 67, 68, 70, 71));
}

}  // namespace
}  // namespace megatrain
