#include "engine/chat/turn_finder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace megatrain {
namespace {

constexpr char kNone[] = "(none)";

std::string Text(std::string_view whole, const std::optional<TextRange>& range) {
  if (!range.has_value()) return kNone;
  return std::string(whole.substr(0, range->first)) + "[" +
         std::string(whole.substr(range->first, range->second - range->first)) + "]";
}

std::optional<TextRange> Find(TurnFinder& finder, std::string_view prompt, std::string_view turn,
                              std::string_view message) {
  const std::optional<size_t> begin = TurnFinder::Begin(prompt, message, turn);
  return finder.Find(begin, turn, message);
}

// The text of `whole` up to the end of its first turn, which stands in brackets.
std::string Found(std::string_view whole, std::string_view prompt, std::string_view turn,
                  std::string_view message) {
  TurnFinder finder(whole);
  return Text(whole, Find(finder, prompt, turn, message));
}

TEST(TurnFinder, FindsWhatFollowsThePrompt) {
  EXPECT_EQ(Found("U:q A:a; U:r", "U:q A:", "U:q A:a;", "a"), "U:q A:[a;]");
  EXPECT_EQ(Found("U:q A:a;\n\nU:r", "U:q A:", "U:q A:a;\n\n", "a"), "U:q A:[a;]");
  EXPECT_EQ(Found("U:q A:a\n\nU:r", "U:q A:", "U:q A:a\n\n", "a"), "U:q A:[a\n\n]");
  EXPECT_EQ(Found("U:q A:\nU:r", "U:q A:", "U:q A:\n", ""), "U:q A:[\n]");
  EXPECT_EQ(Text("xy", TurnFinder::FindExact("xy", "x", "xy", "y")), "x[y]");
  EXPECT_EQ(Text("xz", TurnFinder::FindExact("xz", "x", "xy", "y")), kNone);
}

TEST(TurnFinder, WhiteSpaceBehindTheMarkIsOfFourKinds) {
  for (const std::string space : {" ", "\t", "\r", "\n", "\r\n\t "}) {
    const std::string turn = "U:q A:a;" + space, whole = turn + "U:r";
    EXPECT_EQ(Found(whole, "U:q A:", turn, "a"), "U:q A:[a;]");
    EXPECT_EQ(Text(whole, TurnFinder::FindExact(whole, "U:q A:", turn, "a")), "U:q A:[a;]");
  }
}

TEST(TurnFinder, APieceOfThePromptMayBeMissing) {
  EXPECT_EQ(Found("[S q] a;", "[S sys q]", "[S q] a;", "a"), "[S q][ a;]");
  // The missing text and the rest begin alike.
  EXPECT_EQ(Found("[quiet] a;", "[quick\n\nquiet]", "[quiet] a;", "a"), "[quiet][ a;]");
  EXPECT_EQ(Found("q<A><table>;", "q<A><think>\n", "q<A><table>;", "<table>"), "q<A>[<table>;]");
  EXPECT_EQ(Found("q<A>;", "q<A><think>\n", "q<A>;", ""), kNone);
  EXPECT_EQ(Found("q<B>a;", "q<A>", "q<B>a;", "x"), kNone);
  // Or stand behind the turn.
  EXPECT_EQ(Found("q<A>a;(sys)", "q(sys)<A>", "q<A>a;(sys)", "a"), "q<A>[a;]");
  EXPECT_EQ(Found("q<A>a;r<A>b;(sys)", "q(sys)<A>", "q<A>a;(sys)", "a"), "q<A>[a;]");
  EXPECT_EQ(Found("q<A>(sys)", "q(sys)<A>", "q<A>(sys)", "(sys)"), "q<A>[(sys)]");
}

TEST(TurnFinder, APieceOfTheTurnMayBeMissing) {
  EXPECT_EQ(Found("q<A>a;\nr", "q<A>", "q<A><think>t</think>a;\n", "<think>t</think>a"),
            "q<A>[a;]");
  EXPECT_EQ(Found("q<A><b>;\nr", "q<A>", "q<A><think>t</think><b>;\n", "<b>"), "q<A>[<b>;]");
  // With a prompt that holds what is missing.
  EXPECT_EQ(Found("q<A>a;r", "q<A><think></think>", "q<A><think></think>a;", "a"), "q<A>[a;]");
  EXPECT_EQ(Found("q<A><b>;r", "q<A><think></think>", "q<A><think></think><b>;", "<b>"),
            "q<A>[<b>;]");
  // Nothing of the message is left before the mark.
  EXPECT_EQ(Found("q<A>;r", "q<A>", "q<A>abc;", "abc"), kNone);
}

TEST(TurnFinder, TheMarkMayBeMissing) {
  EXPECT_EQ(Found("q<A>a<U>r", "q<A>", "q<A>a</s>", "a"), "q<A>[a]");
  EXPECT_EQ(Found("q<A>A<U>r", "q<A>", "q<A>a</s>", "a"), kNone);
}

TEST(TurnFinder, AMarkBeforeOneThatOnlyEndsTheConversationIsOfTheTurn) {
  EXPECT_EQ(Found("q<A>a<E>\n<U>r", "q<A>", "q<A>a<E>\n</s>", "a"), "q<A>[a<E>]");
  EXPECT_EQ(Found("q[A]a [E][U]r", "q[A]", "q[A]a [E][/s]", "a"), "q[A][a [E]]");
  EXPECT_EQ(Found("q<A>a\n\n<U>r", "q<A>", "q<A>a\n\n</s>", "a"), "q<A>[a]");
  EXPECT_EQ(Found("q<A>a.<E><U>r", "q<A>", "q<A>a.<E></s>", "a"), "q<A>[a]");
  const std::string whole = "<A>a<E>S<U>r", turn = "Sq<A>#<E></s>";
  EXPECT_EQ(Text(whole, TurnFinder::FindMarked(whole, "Sq<A>", "<A>#<E>S<U>r", turn, "a", "#")),
            "<A>[a<E>]");
}

TEST(TurnFinder, AMarkerShowsWhereATurnWithoutATextBegins) {
  const auto begin = [](std::string_view prompt, std::string_view turn,
                        std::string_view marked) -> std::string {
    const auto at = TurnFinder::BeginMarked(prompt, turn, marked, "#");
    return at.has_value() ? std::string(turn.substr(0, *at)) + "[" : kNone;
  };
  // P has a piece more, or another one that ends alike.
  EXPECT_EQ(begin("q<A><think>\n", "q<A><tool>;", "q<A>#;"), "q<A>[");
  EXPECT_EQ(begin("q<A><think>", "q<A></think><tool>;", "q<A></think>#;"), "q<A></think>[");
  EXPECT_EQ(begin("q<A>", "q<A><tool>;", "q<A>#;"), "q<A>[");
  // Another piece, reasoning before the text, or no text at all.
  EXPECT_EQ(begin("q<A><think>", "q<A>(no)<tool>;", "q<A>(no)#;"), kNone);
  EXPECT_EQ(begin("q<A><think>", "q<A>t</think><tool>;", "q<A></think>#;"), kNone);
  EXPECT_EQ(begin("q<A><think>", "q<A><tool>;", "q<A>;"), kNone);
}

TEST(TurnFinder, AMarkerInPlaceOfTheTextShowsTheTurn) {
  const auto found = [](std::string_view whole, std::string_view prompt,
                        std::string_view marked_whole, std::string_view marked_turn,
                        std::string_view message) {
    return Text(whole,
                TurnFinder::FindMarked(whole, prompt, marked_whole, marked_turn, message, "#"));
  };
  EXPECT_EQ(found("Sq<A>a;r", "Sq<A>", "Sq<A>#;r", "Sq<A>#;", "a"), "Sq<A>[a;]");
  // The text before the turn has moved.
  EXPECT_EQ(found("<A>a;Sr", "Sq<A>", "<A>#;Sr", "Sq<A>#;", "a"), "<A>[a;]");
  EXPECT_EQ(found("q<A>a<U>r", "q<A>", "q<A>#<U>r", "q<A>#</s>", "a"), "q<A>[a]");
  EXPECT_EQ(found("<A>;", "<A>", "<A>#;", "<A>#;", ""), "<A>[;]");
  // White space that the prompt does not end with belongs to the turn.
  EXPECT_EQ(found("q<A>\na;r", "q<A>", "q<A>\n#;r", "q<A>\n#;", "a"), "q<A>[\na;]");
  EXPECT_EQ(found("q<A>\na;r", "q<A>\n", "q<A>\n#;r", "q<A>\n#;", "a"), "q<A>\n[a;]");
  EXPECT_EQ(found("q<A>\na;r", "q<A>\n\n", "q<A>\n#;r", "q<A>\n#;", "a"), kNone);
  EXPECT_EQ(found("q<A>a;r", "q<A]", "q<A>#;r", "q<A>#;", "a"), kNone);
  // The marker is missing or there twice.
  EXPECT_EQ(found("q<A>a;r", "q<A>", "q<A>;r", "q<A>#;", "a"), kNone);
  EXPECT_EQ(found("q<A>a;r", "q<A>", "q<A>#;r", "q<A>;", "a"), kNone);
  EXPECT_EQ(found("q<A>a;#r", "q<A>", "q<A>#;#r", "q<A>#;", "a"), kNone);
  EXPECT_EQ(found("q<A>a;r", "q<A>", "q<A>#;r", "q<A>#;#", "a"), kNone);
  // The texts differ in more than the message.
  EXPECT_EQ(found("p<A>a;r", "q<A>", "q<A>#;r", "q<A>#;", "a"), kNone);
  EXPECT_EQ(found("q<A>a;s", "q<A>", "q<A>#;r", "q<A>#;", "a"), kNone);
  EXPECT_EQ(found("q<A>;", "q<A>;", "q<A>;#;", "q<A>;#;", ""), kNone);
}

TEST(TurnFinder, TurnsAreFoundBehindOneAnother) {
  const std::string whole = "q<A>ok;<T>t<A>ok;<U>r<A>(3)ok;";
  TurnFinder finder(whole);
  EXPECT_EQ(Text(whole, Find(finder, "q<A>", "q<A>(1)ok;", "ok")), "q<A>[ok;]");
  EXPECT_EQ(Text(whole, Find(finder, "q<A>(1)ok;<T>t<A>", "q<A>(1)ok;<T>t<A>(2)ok;", "ok")),
            "q<A>ok;<T>t<A>[ok;]");
  EXPECT_EQ(Text(whole, Find(finder, "q<A>ok;<T>t<A>ok;<U>r<A>", whole, "ok")),
            "q<A>ok;<T>t<A>ok;<U>r<A>[(3)ok;]");
}

TEST(TurnFinder, AfterAnUncertainTurnOnlyWhatIsWholeIsFound) {
  const std::string whole = "q<A>XX;<U>r<A>ok;<U>s<A>ok;";
  TurnFinder finder(whole);
  EXPECT_EQ(Text(whole, Find(finder, "q<A>", "q<A>xx;", "xx")), kNone);
  EXPECT_EQ(Text(whole, Find(finder, "q<A>XX;<U>r<A>", "q<A>XX;<U>r<A>(2)ok;", "ok")), kNone);
  EXPECT_EQ(Text(whole, Find(finder, "q<A>XX;<U>r<A>ok;<U>s<A>", whole, "ok")),
            "q<A>XX;<U>r<A>ok;<U>s<A>[ok;]");
  EXPECT_EQ(Text(whole, TurnFinder(whole).Find(std::nullopt, whole, "ok")), kNone);
}

// The same exchange twice, each with a piece that the whole lacks: the first one's place is taken.
TEST(TurnFinder, ATurnIsNotFoundInThePlaceOfAnother) {
  const std::string whole = "<U>q<A>ok;<U>q<A>ok;";
  TurnFinder finder(whole);
  EXPECT_EQ(Text(whole, Find(finder, "<U>q<A>", "<U>q<A>(1)ok;", "ok")), "<U>q<A>[ok;]");
  EXPECT_EQ(Text(whole, Find(finder, "<U>q<A>(1)ok;<U>q<A>", "<U>q<A>(x)ok;<U>q<A>(2)ok;", "ok")),
            kNone);
}

}  // namespace
}  // namespace megatrain
