// Statements at their edges, and the white space around tags, as Jinja2 3.1.6 gives them with
// trim_blocks and lstrip_blocks; what a program is said to read, and the depth and the memory of
// its values.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/chat/jinja/jinja_program.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

// The text that a program renders, or its error.
std::string Rendered(std::string_view text) {
  const absl::StatusOr<JinjaProgram> program = JinjaProgram::Parse(text);
  if (!program.ok()) return std::string(program.status().message());
  const absl::StatusOr<JinjaRendered> rendered = program->Render({});
  return rendered.ok() ? rendered->text : std::string(rendered.status().message());
}

TEST(JinjaStatementsTest, AJoinerGivesItsSeparatorFromTheSecondCallOn) {
  EXPECT_EQ(Rendered("{% set j = joiner('|') %}a{{ j() }}b{{ j() }}c{{ j() }}"), "ab|c|");
  EXPECT_EQ(Rendered("{% set j = joiner(sep='-') %}a{{ j() }}b{{ j() }}c"), "ab-c");
  EXPECT_EQ(Rendered("{% set j = joiner() %}a{{ j() }}b{{ j() }}c"), "ab, c");
}

TEST(JinjaStatementsTest, AMacrosKeywordsAreWithoutItsCaller) {
  EXPECT_EQ(Rendered("{% macro m() %}{{ kwargs }}{{ caller() }}{% endmacro %}"
                     "{% call m(a=1) %}x{% endcall %}"),
            "{'a': 1}x");
  EXPECT_EQ(Rendered("{% macro f(x, y=x + 1) %}{{ x }},{{ y }};{% endmacro %}"
                     "{{ f(1) }}{{ f(1, 5) }}{{ f(y=2, x=0) }}"),
            "1,2;1,5;0,2;");
}

TEST(JinjaStatementsTest, ADefaultSeesTheArgumentsBehindItAndNoDefaultBehindIt) {
  const std::string macro = "{% set s = 5 %}{% macro m(a=s, s=1) %}{{ a }},{{ s }}{% endmacro %}";
  EXPECT_EQ(Rendered(macro + "{{ m(s=7) }}|{{ m() }}|{{ m(2) }}|{{ m(s=none) }}"),
            "7,7|,1|2,1|None,None");
  EXPECT_EQ(Rendered("{% set s = 5 %}{% macro m(a=s.b, s=1) %}{% endmacro %}{{ m() }}"),
            "line 1: 's' is undefined");
  EXPECT_EQ(Rendered("{% macro m(x, a=x.b) %}{% endmacro %}{{ m() }}"),
            "line 1: parameter 'x' was not provided");
}

TEST(JinjaStatementsTest, TheElseOfALoopBelongsToTheLoopAroundIt) {
  EXPECT_EQ(Rendered("{% for y in [1, 2] %}{% for x in [] %}{% else %}{% break %}{% endfor %}"
                     "{{ y }}{% endfor %}end"),
            "end");
  EXPECT_EQ(Rendered("{% for y in [1, 2] %}{% for x in [3, 4] %}{{ x }}{% break %}{% endfor %}"
                     "{{ y }}{% endfor %}"),
            "3132");
}

TEST(JinjaStatementsTest, ALoopComparesAllThatItIsToldAndCountsBackwards) {
  EXPECT_EQ(Rendered("{% for x in [1, 1, 2] %}{{ loop.changed(x, 1) }}"
                     "{{ loop.cycle(*['a', 'b']) }} {% endfor %}"),
            "Truea Falseb Truea ");
  EXPECT_EQ(Rendered("{% for x in [1, 2, 3] %}{{ loop.revindex }}{{ loop.revindex0 }}"
                     "{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}"),
            "3221");
  EXPECT_THAT(Rendered("{% for x in [1] recursive %}{{ loop() }}{% endfor %}"),
              HasSubstr("takes one argument"));
}

TEST(JinjaStatementsTest, ANumberOfValuesThatDoesNotFitIsAnError) {
  for (const char* const values : {"[1]", "[1, 2, 3]"}) {
    EXPECT_THAT(Rendered(absl::StrCat("{% set a, b = ", values, " %}")),
                HasSubstr("expected 2 values to unpack"));
  }
}

TEST(JinjaStatementsTest, AutoescapeIsOffOrAnError) {
  EXPECT_EQ(Rendered("{% autoescape false %}{{ '<' }}{% endautoescape %}"), "<");
  EXPECT_THAT(Rendered("{% autoescape true %}{{ '<' }}{% endautoescape %}"),
              HasSubstr("{% autoescape true %} is not supported"));
}

TEST(JinjaStatementsTest, SignsOfRawBlocksAndCommentsDropWhiteSpace) {
  EXPECT_EQ(Rendered("  {%- raw -%} x {%- endraw %}\ny"), "xy");
  EXPECT_EQ(Rendered("  {%+ raw %}x{% endraw +%}\ny"), "  x\ny");
  EXPECT_EQ(Rendered("{% raw -%}\n a {%- endraw -%}\n b"), "ab");
  EXPECT_EQ(Rendered("\t{#- c #}\n x"), " x");
  EXPECT_EQ(Rendered("x  {# c -#}  y"), "x  y");
  EXPECT_EQ(Rendered("a\n  {#+ c #}b"), "a\n  b");
  EXPECT_EQ(Rendered("a\n  {# c +#}\nb"), "a\n\nb");
}

TEST(JinjaStatementsTest, SignsOfTagsKeepOrDropWhatStandsAroundThem) {
  EXPECT_EQ(Rendered("x\n  {%+ set a = 1 %}y"), "x\n  y");
  EXPECT_EQ(Rendered("{% if true +%}\n x{% endif %}"), "\n x");
  EXPECT_EQ(Rendered("{% if 1 -%}\n\n  x\n  {%- endif +%}\ny"), "x\ny");
  EXPECT_EQ(Rendered("a{{ 1 -}}\n x"), "a1x");
  EXPECT_EQ(Rendered("a\n\u00a0{% set x = 1 %}b"), "a\nb") << "any white space of Python";
  EXPECT_EQ(Rendered("{{ 1 }}  {# a #}\n{{ 2 }}"), "1  2") << "not at the beginning of a line";
}

// What a template leaves unread is refused in a record, so that these two must not say too much.
TEST(JinjaStatementsTest, AKeyIsAnAttributeOrAWholeText) {
  const absl::StatusOr<JinjaProgram> program = JinjaProgram::Parse(
      "{% set ns = namespace() %}{% set ns.target = 1 %}{{ m.tools }}{{ f(documents=1) }}"
      "{{ d['a' 'b'] }}{{ 'whole text' }}");
  ASSERT_TRUE(program.ok()) << program.status();
  for (const char* const name : {"target", "tools", "ab", "whole text"}) {
    EXPECT_TRUE(program->reads_key(name)) << name;
    EXPECT_TRUE(program->mentions(name)) << name;
  }
  for (const char* const name : {"m", "f", "documents"}) {
    EXPECT_FALSE(program->reads_key(name)) << name;
    EXPECT_TRUE(program->mentions(name)) << name;
  }
  for (const char* const name : {"a", "b", "whole", "text"}) {
    EXPECT_FALSE(program->mentions(name)) << name;
  }
}

TEST(JinjaStatementsTest, ValuesAreNestedAtMost200Deep) {
  for (const char* const around : {"[ns.x]", "(ns.x,)", "{'a': ns.x}"}) {
    const auto nested = [around](int times) {
      return Rendered(absl::StrCat("{% set ns = namespace(x=[]) %}{% for i in range(", times,
                                   ") %}{% set ns.x = ", around, " %}{% endfor %}made"));
    };
    EXPECT_EQ(nested(199), "made") << around << ", with the innermost list 200 levels";
    EXPECT_THAT(nested(200), HasSubstr("nested in more than 200 levels")) << around;
  }
}

TEST(JinjaStatementsTest, APathHasAtMostAThousandSteps) {
  const auto path = [](int steps, const std::string& separator) {
    std::string text = "a";
    for (int i = 1; i < steps; ++i) text += separator + "a";
    return text;
  };
  EXPECT_EQ(
      Rendered(absl::StrCat("{{ [1]|map(attribute='", path(1000, "."), "', default='z')|first }}")),
      "z");
  EXPECT_EQ(Rendered(absl::StrCat("{{ [{'a': 1}]|sort(attribute='", path(1000, ","), "') }}")),
            "[{'a': 1}]");
  for (const std::string separator : {".", ","}) {
    EXPECT_THAT(
        Rendered(absl::StrCat("{{ [{'a': 1}]|sort(attribute='", path(1100, separator), "') }}")),
        HasSubstr("a path of more than 1000"))
        << separator;
  }
}

// Lists that exist only while a value is made take memory too, 8 or 16 bytes a part.
TEST(JinjaStatementsTest, TheMemoryOfSplitsAndSlicesIsCounted) {
  const auto code = [](std::string_view text, int64_t bytes_max) {
    const absl::StatusOr<JinjaProgram> program = JinjaProgram::Parse(text);
    EXPECT_TRUE(program.ok()) << program.status();
    JinjaOptions options;
    options.limits.bytes_max = bytes_max;
    return program.ok() ? program->Render({}, options).status().code() : program.status().code();
  };
  constexpr auto kOk = absl::StatusCode::kOk, kBeyond = absl::StatusCode::kResourceExhausted;
  struct Case {
    const char* text;
    int64_t beyond, enough;
  };
  // Of the first two, each part is a text of its own besides, of 65 bytes in all.
  for (const Case& c : {Case{"{{ ('a,' * 1000).split(',')|length }}", 75'000, 150'000},
                        Case{"{{ ('a\\n' * 1000).splitlines()|length }}", 75'000, 150'000},
                        Case{"{{ ('ab' * 2000)[::2]|length }}", 20'000, 80'000},
                        Case{"{{ ('\\n' * 1000)|indent(0)|length }}", 8'000, 40'000}}) {
    EXPECT_EQ(code(c.text, c.beyond), kBeyond) << c.text;
    EXPECT_EQ(code(c.text, c.enough), kOk) << c.text;
  }
}

TEST(JinjaStatementsTest, AClocksFormatMayEndWithAPercentSign) {
  EXPECT_EQ(Rendered("{{ strftime_now('%Y 100%') }}"), "1970 100%");
}

}  // namespace
}  // namespace megatrain
