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
      {"(-2) ** 63", "-9223372036854775808"},
      {"0 ** 0", "1"},
      {"1.5 - 2", "-0.5"},
      {"2 ** 0.5", "1.4142135623730951"},
      {"(-8.0) ** 2", "64.0"},
      {"(-9223372036854775807 - 1) > -1e400", "True"},
      {"range(0, 9, 3)|list", "[0, 3, 6]"},
      {"range(1, *[9, 3])|list", "[1, 4, 7]"},
      {"(1e400).is_integer()", "False"},
      {"0b1_0 + 0O17 + 0Xff", "272"},
      {"'0b101'|int(base=2)", "5"},
      {"'0o17'|int(base=8)", "15"},
      {"'010'|int(base=0)", "10"},
      {"'12'|int(base=37)", "12"},
      {"none|int(7)", "7"},
      {"('nan'|float)|int(3)", "3"},
      {"none|float(2.5)", "2.5"},
      {"'1__0'|float(7)", "7"},
      {"'-Infinity'|float", "-inf"},
      {"'5.'|float", "5.0"},
      {"(-2.45)|round(1, 'floor')", "-2.5"},
      {"42|round(-1, 'ceil')", "50.0"},
      {"45|round(-1)", "40"},
      {"(-5.5)|round(-309)", "-0.0"},
      {"1.5|round(324)", "1.5"},
      {"1023|filesizeformat(true)", "1023 Bytes"},
      {"1024|filesizeformat(true)", "1.0 KiB"},
      {"'1000'|filesizeformat", "1.0 kB"},
      {"'1e3'|filesizeformat ~ true|filesizeformat(none)", "1.0 kB1 Byte"},
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
      {R"(['\a\v\0'])", R"(['\x07\x0b\x00'])"},
      {"'a\\\nb'", "ab"},
      {"(('<'|safe) * 2) + '<'", "<<&lt;"},
      {"('<a'|safe)|replace('a', 'b') + '<'", "<b<"},
      {"'lol'|replace('l', 'L', 0)", "lol"},
      {"'a{b[c<d_e'|title", "A{B[C<D_e"},
      {R"('a\n'|indent(2, blank=true))", "a\n  "},
      {"'_.-~+&'|urlencode", "_.-~%2B%26"},
      {"'a,b'.split(',', 0)", "['a,b']"},
      {"' a b '.split(none, 0)", "['a b ']"},
      {"' a b '.rsplit(none, 0)", "[' a b']"},
      {"'abc'.startswith('', 3)", "True"},
      {"'abc'.endswith('', 2, 1)", "False"},
      {"'abc'.removesuffix('x')", "abc"},
      {"'ab'.ljust(4, 'é')", "abéé"},
      {"'-'.zfill(3)", "-00"},
      {"'ÄßÑ'.swapcase()", "äSSñ"},
      {"'ǅ'.istitle() ~ 'ǅ'.isupper() ~ 'ǅ'.islower()", "TrueFalseFalse"},
      {"'é1'.isidentifier() ~ 'a-b'.isidentifier()", "TrueFalse"},
      {"'é😀x'[-2] ~ 'é😀x'[::-2] ~ 'é😀x'.find('x')", "😀xé2"},
      {"'é😀x'|truncate(2, true, '', 0)", "é😀"},
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
      {"'%a' % '你😀'", R"('\u4f60\U0001f600')"},
      {"'%d %d %x' % (-3.9, true, true)", "-3 1 1"},
      {"'%08.3f|%+06d' % (-2.5, 5)", "-002.500|+00005"},
      {"'abc' % {'a': 1}", "abc"},
      {"'%5s|' % 'é😀x'", "  é😀x|"},
      {"'{:5}|{:.2}|'.format('é😀x', 'é😀x')", "é😀x  |é😀|"},
      {"'{:d} {}'.format(true, true)", "1 True"},
      {"'{:n} {:n}'.format(1234, 1.5)", "1234 1.5"},
      {"'{:#.3g}|{:#.0f}'.format(1.0, 1.0)", "1.00|1."},
      {"'{:^+7}|{:<+7}|{:=+7}'.format(5, 5, 5)", "  +5   |+5     |+     5"},
      {"'{:<<5}|{:==5}|{:>>3}'.format(1, 2, 3)", "1<<<<|====2|>>3"},
      {"'{:.1%} {: } {: }'.format(0.256, 5, -5)", "25.6%  5 -5"},
      {"'{:,} {:,} {:_}'.format(-1234567, 999, 1234.5)", "-1,234,567 999 1_234.5"},
      {"'{:f} {:F} {:05} {:,}'.format(1e400, 1e400, -1e400, 1e400)", "inf INF -0inf inf"},
      {"'{:08b} {:#06x} {:c}'.format(5, 255, 128512)", "00000101 0x00ff 😀"},
      {"[1]|tojson(indent=-1)", "[\n1\n]"},
      {"{'a': [1, 2]}|tojson(indent=1, separators=('; ', '='))", "{\n \"a\"=[\n  1; \n  2\n ]\n}"},
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
      {"{} or () or range(0) or {}.keys() or 'x'", "x"},
      {"namespace() and joiner() and 'x'", "x"},
      {"{'a': 1}.keys() == ['a']", "False"},
      {"range(0, 3, 2) == range(0, 4, 2)", "True"},
      {"{range(2): 1}[range(2)]", "1"},
      {"(1, 2, 3) > (1, 2)", "True"},
      {"[1, 'a'] < [2, 0]", "True"},
      {"{1: 'a', 'b': 2} == {'b': 2, 1.0: 'a'}", "True"},
      {"(1, 2).copy is defined", "False"},
      {"{}['keys'] is callable", "True"},
      {"{'clear': 1}.clear ~ {'popitem': 2}.popitem ~ {'update': 4}.update", ""},
      {"[1, 2].index(1, -9)", "0"},
      {"[1, 2, 3][::-5] ~ [1, 2, 3, 4][3:0:-3] ~ [1, 2, 3, 4][3::-3]", "[3][4][4, 1]"},
      {"[1, 2, 3, 4][::3] ~ range(0, 10, 3)[1:]", "[1, 4]range(3, 12, 3)"},
      {"range(10)[0:5:2] ~ range(3)[::5] ~ range(9, 0, -2)[::-1]",
       "range(0, 5, 2)range(0, 3, 5)range(1, 11, 2)"},
      {"range(10)[5:2] ~ range(4)[-9:9] ~ range(0)[1:]", "range(5, 2)range(0, 4)range(0, 0)"},
      {"range(9223372036854775806, 9223372036854775807)[::5]",
       "range(9223372036854775806, 9223372036854775807, 5)"},
      {"[0, 1, '']|reject|list", "[0, '']"},
      {"[{'a': 1}]|map(attribute='a.b', default='z')|list", "['z']"},
      {"[[1, 2], [3, 4]]|map(attribute=1)|list", "[2, 4]"},
      {"[1, 2, 3]|select('<', 2)|list ~ [1, 2, 3]|select('<=', 2)|list", "[1][1, 2]"},
      {"[1, 2, 3]|select('lessthan', 2)|list ~ [1, 2, 3]|select('le', 2)|list", "[1][1, 2]"},
      {"[1, 2, 3]|select('greaterthan', 2)|list ~ [1, 2, 3]|select('gt', 2)|list", "[3][3]"},
      {"[1, 2, 3]|select('>=', 2)|list ~ [1, 2, 3]|select('!=', 2)|list", "[2, 3][1, 3]"},
      {"{'x': 'B', 'y': 'a'}|dictsort(by='value')", "[('y', 'a'), ('x', 'B')]"},
      {"{'x': 'B', 'y': 'a'}|dictsort(true, 'value')", "[('x', 'B'), ('y', 'a')]"},
      {"{'x': none}|dictsort(by='value') ~ [none, none]|sort", "[('x', None)][None, None]"},
      // Of equal ones the first.
      {"[1, 1.0, true]|max ~ [1.0, 1]|min ~ ['b', 'B']|min", "11.0b"},
      {"[1, 2]|map('string')|reverse", "['2', '1']"},
      {"[1, 2]|slice(2, 'x')|list", "[[1, 'x'], [2, 'x']]"},
      {"([1]|map('string')) is iterable and range(2) is sequence", "True"},
      {"([1]|map('string')) is sequence or {}.keys() is sequence", "False"},
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
           "'x'|filesizeformat",
           "'x'|filesizeformat(true)",
           "none|filesizeformat(true)",
           "{'x': none, 'y': none}|dictsort(by='value')",
           "[{'a': none}, {'a': none}]|groupby('a')",
           "[1]|tojson(separators=(1, 2))",
           "[1]|tojson(separators=(',', ':', ''))",
           "['a']|sum(start='')",
           "[1]|map('string')|last",
           "'a'.center(5, 'ab')",
           "'a'.rindex('b')",
           "'a'.partition('')",
           "1.0 // 0",
           "1.0 % 0.0",
           "-(-9223372036854775807 - 1)",
           "(-9223372036854775807 - 1)|abs",
           "[1] + (2,)",
           "+none",
           "{ {}: 1 }",
           "{{'a': 1}.keys(): 1}",
           "1 in none",
           "[1] < (2,)",
           "[1, 'a'] < [1, 2]",
           "1 < nope",
           "'a'|upper(x=1)",
           "5()",
           "range(2, nope)",
           "'%d' % 1e400",
           "'%f' % 'a'",
           "'%s %s' % {'a': 1}",
           "'abc' % (1,)",
           "'%s'|format(1, a=2)",
           "'{!z}'.format(1)",
           "'{0[0]x}'.format([1])",
           "'{0.}'.format(1)",
           "'{:.}'.format(1.0)",
           "'{:c}'.format(-1)",
           "'{:d}'.format(1.5)",
           "'{:s}'.format(true)",
           "nope[1:]",
           "[1][nope:]",
           "1e400|int",
           "'-9223372036854775809'|int",
           "[1]|map(attribute='a', x=1)|list",
           "[1]|selectattr()|list",
           "cycler(1)|length",
           "[1] is filter",
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
           "{{ 01 }}",
           "{{ 1__0 }}",
           "{{ 0b12 }}",
           "{{ a² }}",
           "{{ (1, 2 }}",
           "{{ 1 %}",
           "{{ x[1:2:3:4] }}",
           "{% set x = 1 }}",
           "{% with a = 1 b = 2 %}{% endwith %}",
           "{% macro m(a b) %}{% endmacro %}",
           "{% block a %}{% endblock b %}",
           "{% call 1 %}{% endcall %}",
           "{% if 1 %}{% else %}{% else %}{% endif %}",
           "{% for x in [] %}{% else %}{% break %}{% endfor %}",
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
