// Values and programs at their edges, as Jinja2 3.1.6 gives them, and the exact limits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/chat/jinja/jinja_program.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<JinjaRendered> Render(std::string_view text, const JinjaOptions& options = {}) {
  const absl::StatusOr<JinjaProgram> program = JinjaProgram::Parse(text);
  if (!program.ok()) return program.status();
  return program->Render({}, options);
}

struct Expression {
  const char* text;
  const char* value;
};

void ExpectValues(const std::vector<Expression>& expressions) {
  for (const auto& [text, value] : expressions) {
    const auto rendered = Render(absl::StrCat("{{ ", text, " }}"));
    EXPECT_TRUE(rendered.ok()) << text << ": " << rendered.status();
    if (rendered.ok()) {
      EXPECT_EQ(rendered->text, value) << text;
    }
  }
}

TEST(JinjaEdgesTest, Numbers) {
  ExpectValues({
      {"9223372036854775807 < 9223372036854775808.0", "True"},
      {"(-9223372036854775807 - 1) == -9223372036854775808.0", "True"},
      {"9223372036854775807 < 1e400", "True"},
      {"(-9223372036854775807 - 1) % -1", "0"},
      {"7.5 // -2", "-4.0"},
      {"7.5 % -2", "-0.5"},
      {"4.0 % -2", "-0.0"},
      {"-0.5 // 1", "-1.0"},
      {"-0.0 // 1", "-0.0"},
      {"0.0 or 'x'", "x"},
      {"-true", "-1"},
      {"+true", "1"},
      {"1e+2", "100.0"},
      {"2E-3", "0.002"},
      {"0x_1F", "31"},
      {"1e-9", "1e-09"},
      {"1e-10", "1e-10"},
      {"'9223372036854775807'|int", "9223372036854775807"},
      {"'-0x1A'|int(base=16)", "-26"},
      {"'0x1f'|int(base=0)", "31"},
      {"'z'|int(base=36)", "35"},
      {"'+5'|int", "5"},
      {"'5_'|int", "0"},
      {"'1__0'|int", "0"},
      {"range(-9223372036854775807, 9223372036854775807, 9223372036854775807)|list",
       "[-9223372036854775807, 0]"},
      {"999|filesizeformat", "999 Bytes"},
      {"1000000|filesizeformat", "1.0 MB"},
      {"1e27|filesizeformat", "1000.0 YB"},
  });
}

TEST(JinjaEdgesTest, Texts) {
  ExpectValues({
      {R"('\1012')", "A2"},
      {R"('\ud7ff\ue000'|length)", "2"},
      {R"('\你\😀')", R"(\u4f60\U0001f600)"},
      {"'foo bar baz qux'|truncate(10)", "foo bar baz qux"},
      {"('a' * 260)|truncate|length", "260"},
      {"('a' * 261)|truncate|length", "255"},
      {"'abc'|center|length", "80"},
      {"'ab'.find('', 2)", "2"},
      {"'ab'.find('', 3)", "-1"},
      {"'ab'.count('', 3)", "0"},
      {"'hello'.rindex('l')", "3"},
      {R"('a\tb'.expandtabs(0))", "ab"},
      {R"('é\tb\rc\td'.expandtabs(4))", "é   b\rc   d"},
      {R"('a\x1cb\x1ec\x1fd\x85e\u2029f'.splitlines())", R"(['a', 'b', 'c\x1fd', 'e', 'f'])"},
      {"'abc'.removeprefix('x')", "abc"},
      {"'abc'[:-3:-1]", "cb"},
      {"'abc'[:-4:-1]", "cba"},
      {"'abc'[-9:2]", "ab"},
      {"' ~'.isprintable()", "True"},
      {"''|last is defined", "False"},
  });
}

TEST(JinjaEdgesTest, Formats) {
  ExpectValues({
      {"'%5c|%-5c|%5c'|format('a', 'b', 65)", "    a|b    |    A"},
      {"'%-8.3d|%8.3d|%.2d'|format(-5, 5, 123)", "-005    |     005|123"},
      {"'%+.3d|% .3d|%#.4x|%+ d'|format(5, 5, 255, 5)", "+005| 005|0x00ff|+5"},
      {"'%-05d|%ld|%.*f'|format(5, 5, -1, 2.5)", "5    |5|2"},
      {"'%(a(b))s' % {'a(b)': 1}", "1"},
      {"'{!r:>5}|{:5}|{:<05}'.format('a', true, 3)", "  'a'|    1|30000"},
      {"'{:é^5}|{:*=+6}'.format('x', 42)", "ééxéé|+***42"},
      {"'{:_x} {:_b}'.format(305419896, 300)", "1234_5678 1_0010_1100"},
      {"'{:08,} {:07,}'.format(1234, 1234)", "0,001,234 001,234"},
      {"'{:09,.2f} {:010_}'.format(12.5, -7)", "00,012.50 -0_000_007"},
      // The widest field, in time that grows with its width only.
      {"'{:01048576,}'.format(1)|length", "1048577"},
      {"'{:#X} {:x} {:5c}|'.format(255, -255, 65)", "0XFF -ff     A|"},
      {"'{:.3} {:.3} {:.1}'.format(123.0, 100.0, 1.0)", "1.23e+02 1e+02 1e+00"},
      {"'{:,} {:,} {:,%}'.format(1e20, 1234567.5, 12345.0)", "1e+20 1,234,567.5 1,234,500.000000%"},
      {"('<{}>'|safe).format('<')", "<&lt;>"},
      {"('<{}>'|safe).format('<'|safe)", "<<>"},
  });
}

TEST(JinjaEdgesTest, Containers) {
  ExpectValues({
      {"{'a': 1, 'b': 2}.keys() == {'b': 1, 'a': 2}.keys()", "True"},
      {"{'a': 1}.keys() == {'a': 1, 'b': 2}.keys()", "False"},
      {"{'a': 1, 'b': 2}.keys() == {'a': 1}.keys()", "False"},
      {"{'a': 1}.keys() == {'b': 1}.keys()", "False"},
      {"{'a': 1, 'b': 2}.items() == {'b': 2, 'a': 1}.items()", "True"},
      {"{'a': 1}.items() == {'a': 2}.items()", "False"},
      {"{'a': 1}.values() == {'a': 1}.values()", "False"},
      {"[1, 2, 3, 4]|batch(2, 0)|list", "[[1, 2], [3, 4]]"},
      {"[1, 2, 3, 4]|slice(3)|list", "[[1, 2], [3], [4]]"},
      {"1 is eq 1.0", "True"},
      {"'a' is in {'a': 1}", "True"},
      {"1 is in [[1]][0]", "True"},
  });
}

// Python raises an exception for all of these but the integers beyond 64 bits and the power, which
// are not values here.
TEST(JinjaEdgesTest, WhatHasNoValueIsAnError) {
  for (const char* const text : {
           "dict([(1, 2, 3)])",
           "dict([], [])",
           "dict(**[])",
           "cycler(1, a=2)",
           "joiner()(1)",
           "{(1, [2]): 3}",
           "(-9223372036854775807 - 1) // -1",
           "'9223372036854775808'|int",
           "'99999999999999999999999'|int",
           "1e19|int",
           "(-8) ** 0.5",
           "10.0 ** 400",
           "'{:{:{}}}'.format('a', 5, 1)",
           "'{0} {}'.format(1, 2)",
           "'{!rx}'.format('a')",
           "'{a'.format(a=1)",
           "'{:.2d}'.format(1)",
           "'{:,x}'.format(1)",
           "'{:+}'.format('a')",
           "'{:=5}'.format('a')",
           "'{:,}'.format('a')",
           "'{:#}'.format('a')",
           "'{:5}'.format(none)",
           "'%d %d' % (1,)",
           "'%(a)s' % 1",
           "'%x' % 3.5",
           "'%c' % 1114112",
           "'%5'|format(1)",
           "'a'|replace('a', 'b', old='c')",
           "'abc'|truncate(5, leeway=-1)",
           "[1]|tojson(separators=(1, 2))",
           "[1]|tojson(separators=(',', ':', ''))",
           "['a']|sum(start='')",
           "[1]|map('string')|last",
           "'a'.center(5, 'ab')",
           "'a'.rindex('b')",
           "'a'.partition('')",
       }) {
    const auto program = JinjaProgram::Parse(absl::StrCat("{{ ", text, " }}"));
    ASSERT_TRUE(program.ok()) << text << ": " << program.status();
    EXPECT_EQ(program->Render({}).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(JinjaEdgesTest, WhatJinjaDoesNotCompileIsNoProgram) {
  for (const char* const text : {
           "{{ dict(a=1, 2) }}",
           "{{ dict(a=1, a=2) }}",
           "{{ dict(*[], *[]) }}",
           "{{ dict(*[], 1) }}",
           "{{ dict(**{}, *[]) }}",
           "{{ dict(**{}, **{}) }}",
           "{{ dict(**{}, a=1) }}",
           "{{ dict(**{}, 1) }}",
           R"({{ '\U00110000' }})",
           R"({{ '\udfff' }})",
           R"({{ '\x4g' }})",
           R"({{ '\N' }})",
           R"({{ '\N{NO SUCH NAME}' }})",
           "{# a",
           "{% raw %}a",
           "{% block x required %}{% endblock %}",
           "{% for x in [] %}{% block b %}{% break %}{% endblock %}{% endfor %}",
           // A conditional lets unknown filters and tests pass, but not in a scope of its own.
           "{% if 0 %}{% set x %}{{ 1|nosuch }}{% endset %}{% endif %}",
           "{% if 0 %}{% set x | nosuch %}{% endset %}{% endif %}",
           "{% if 0 %}{% macro m() %}{{ 1|nosuch }}{% endmacro %}{% endif %}",
           "{% if 0 %}{% call m() %}{{ 1|nosuch }}{% endcall %}{% endif %}",
           "{% if 0 %}{% filter upper %}{{ 1|nosuch }}{% endfilter %}{% endif %}",
           "{% if 0 %}{% filter nosuch %}{% endfilter %}{% endif %}",
           "{% if 0 %}{% with %}{{ 1|nosuch }}{% endwith %}{% endif %}",
           "{% if 0 %}{% block b %}{{ 1|nosuch }}{% endblock %}{% endif %}",
           "{% if 0 %}{% autoescape false %}{{ 1|nosuch }}{% endautoescape %}{% endif %}",
           "{% if 0 %}{% for x in [] %}{{ 1 is nosuch }}{% endfor %}{% endif %}",
           "{% if 0 %}{% for x in [] if x|nosuch %}{% endfor %}{% endif %}",
       }) {
    EXPECT_EQ(JinjaProgram::Parse(text).status().code(), absl::StatusCode::kInvalidArgument)
        << text;
  }
  EXPECT_TRUE(
      JinjaProgram::Parse("{% if 0 %}{% with a = 1|nosuch %}{% endwith %}{% endif %}").ok());
}

TEST(JinjaEdgesTest, AMacroHasItsSpecialVariablesBesideAnInnerOne) {
  const std::string inner = "{% macro i() %}{% endmacro %}{% endmacro %}";
  const auto rendered = Render(absl::StrCat(
      "{% macro a() %}{{ varargs }}", inner, "{{ a(1) }}", "{% macro b() %}{{ kwargs }}", inner,
      "{{ b(x=1) }}", "{% macro c() %}{{ caller() }}", inner, "{% call c() %}called{% endcall %}",
      "{{ a.catch_varargs }}{{ a.catch_kwargs }}{{ a.caller }}"));
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(rendered->text, "(1,){'x': 1}calledTrueFalseFalse");
  EXPECT_THAT(
      std::string(Render("{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}").status().message()),
      HasSubstr("macro 'm' takes no keyword argument 'a'"));
}

TEST(JinjaEdgesTest, ALoopThatIsKeptHasEnded) {
  const std::string keep =
      "{% set ns = namespace() %}{% for x in [1, 2] recursive %}{% set ns.l = loop %}{% break %}"
      "{% endfor %}";
  const auto rendered =
      Render(keep + "{{ ns.l.index }} {{ ns.l.last }} {{ ns.l.nextitem is defined }}");
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(rendered->text, "1 True False");
  EXPECT_THAT(std::string(Render(keep + "{{ ns.l([3]) }}").status().message()),
              HasSubstr("to be called recursively"));
}

TEST(JinjaEdgesTest, LimitsAreTheLastThatIsAllowed) {
  const auto code = [](std::string_view text, const JinjaLimits& limits) {
    JinjaOptions options;
    options.limits = limits;
    return Render(text, options).status().code();
  };
  constexpr auto kOk = absl::StatusCode::kOk, kBeyond = absl::StatusCode::kResourceExhausted;
  // Two nodes are evaluated: the output and its number.
  EXPECT_EQ(code("{{ 1 }}", {.steps_max = 2}), kOk);
  EXPECT_EQ(code("{{ 1 }}", {.steps_max = 1}), kBeyond);
  EXPECT_EQ(code("{{ 'abcd' }}", {.bytes_max = 4}), kOk);
  EXPECT_EQ(code("{{ 'abcd' }}", {.bytes_max = 3}), kBeyond);
  // The output, three operators and the innermost numbers.
  EXPECT_EQ(code("{{ 1 + (2 * (3 - 4)) }}", {.depth_max = 5}), kOk);
  EXPECT_EQ(code("{{ 1 + (2 * (3 - 4)) }}", {.depth_max = 4}), kBeyond);

  EXPECT_TRUE(JinjaProgram::Parse(std::string(JinjaProgram::kTextBytesMax, 'a')).ok());
  const auto blocks = [](int levels) {
    std::string text;
    for (int i = 0; i < levels; ++i) text += "{% with %}";
    for (int i = 0; i < levels; ++i) text += "{% endwith %}";
    return JinjaProgram::Parse(text).ok();
  };
  EXPECT_TRUE(blocks(99)) << "with the program itself 100 levels";
  EXPECT_FALSE(blocks(100));
  const auto sum = [](int additions) {
    std::string text = "{{ 1";
    for (int i = 0; i < additions; ++i) text += " + 1";
    return JinjaProgram::Parse(text + " }}").ok();
  };
  EXPECT_TRUE(sum(249)) << "with the first number 250 levels";
  EXPECT_FALSE(sum(250));
}

}  // namespace
}  // namespace megatrain
