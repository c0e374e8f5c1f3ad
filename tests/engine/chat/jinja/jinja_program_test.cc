// Programs rendered as `transformers` renders them (tests/golden/make_chat_template_references.py),
// and the limits.
#include "engine/chat/jinja/jinja_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/support/read_file.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

constexpr char kGolden[] = "tests/golden/chat_templates/";

JinjaValue ToValue(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return JinjaValue::Bool(json.get<bool>());
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return JinjaValue::Int(json.get<int64_t>());
    case Json::value_t::number_float:
      return JinjaValue::Float(json.get<double>());
    case Json::value_t::string:
      return JinjaValue::String(json.get<std::string>());
    case Json::value_t::array: {
      JinjaValue::List items;
      for (const Json& item : json) items.push_back(ToValue(item));
      return JinjaValue::MakeList(std::move(items));
    }
    case Json::value_t::object: {
      JinjaValue::Entries entries;
      for (const auto& [key, value] : json.items()) entries.emplace_back(key, ToValue(value));
      return JinjaValue::MakeDict(std::move(entries));
    }
    default:
      return JinjaValue::None();
  }
}

JinjaVariables ToVariables(const Json& json) {
  JinjaVariables variables;
  for (const auto& [name, value] : json.items()) variables.emplace_back(name, ToValue(value));
  return variables;
}

// NOW of the script.
JinjaOptions StandingClock() {
  JinjaOptions options;
  options.now = absl::FromCivil(absl::CivilSecond(2025, 3, 4, 15, 9, 26), absl::UTCTimeZone()) +
                absl::Microseconds(535897);
  return options;
}

absl::StatusOr<JinjaRendered> Render(std::string_view text, const JinjaVariables& variables = {},
                                     const JinjaOptions& options = StandingClock()) {
  const absl::StatusOr<JinjaProgram> program = JinjaProgram::Parse(text);
  if (!program.ok()) return program.status();
  return program->Render(variables, options);
}

std::string Hash64(std::string_view text) {
  uint64_t value = 0xcbf29ce484222325;
  for (const unsigned char byte : text) value = (value ^ byte) * 0x100000001b3;
  return absl::StrFormat("%016x", value);
}

// A range that ends beyond the text is null in the references.
void ExpectRanges(const Json& expected, const JinjaRendered& rendered, const std::string& what) {
  ASSERT_EQ(expected.size(), rendered.generation.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!expected[i][0].is_null()) {
      EXPECT_EQ(expected[i][0].get<size_t>(), rendered.generation[i].first) << what;
    }
    if (!expected[i][1].is_null()) {
      EXPECT_EQ(expected[i][1].get<size_t>(), rendered.generation[i].second) << what;
    }
  }
}

void ExpectRaised(const Json& expected, const absl::Status& status, const std::string& what) {
  if (!expected.contains("raised")) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << what << status;
    return;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << what << status;
  EXPECT_EQ(std::string(status.message()), expected["raised"].get<std::string>()) << what;
}

TEST(JinjaProgramTest, SmallProgramsGiveWhatTransformersGives) {
  const Json golden = Json::parse(ReadFileOrEmpty(absl::StrCat(kGolden, "programs.json")));
  const JinjaVariables variables = ToVariables(golden["variables"]);
  ASSERT_GT(golden["programs"].size(), 700u);
  for (const Json& expected : golden["programs"]) {
    const std::string text = expected["program"];
    const absl::StatusOr<JinjaRendered> rendered = Render(text, variables);
    if (expected.contains("text")) {
      EXPECT_TRUE(rendered.ok()) << text << "\n" << rendered.status();
      if (!rendered.ok()) continue;
      EXPECT_EQ(rendered->text, expected["text"].get<std::string>()) << text;
      ExpectRanges(expected.value("generation", Json::array()), *rendered, text);
    } else if (rendered.ok()) {
      ADD_FAILURE() << text << "\ngave " << rendered->text << ", transformers "
                    << expected["error"];
    } else {
      ExpectRaised(expected, rendered.status(), text);
    }
  }
}

TEST(JinjaProgramTest, PublishedTemplatesGiveWhatTransformersGives) {
  const Json golden = Json::parse(ReadFileOrEmpty(absl::StrCat(kGolden, "published.json")));
  std::vector<JinjaVariables> conversations;
  for (const Json& conversation : golden["conversations"]) {
    conversations.push_back(ToVariables(conversation));
  }
  ASSERT_GE(golden["published"].size(), 60u);
  for (const auto& [name, outcomes] : golden["published"].items()) {
    const auto program = JinjaProgram::Parse(ReadFileOrEmpty(kGolden + name));
    if (!program.ok()) {
      ADD_FAILURE() << name << ": " << program.status();
      continue;
    }
    ASSERT_EQ(outcomes.size(), conversations.size());
    for (size_t i = 0; i < outcomes.size(); ++i) {
      const Json& expected = outcomes[i];
      const std::string what = absl::StrCat(name, ", conversation ", i, "\n");
      const absl::StatusOr<JinjaRendered> rendered =
          program->Render(conversations[i], StandingClock());
      if (expected.is_object()) {
        EXPECT_FALSE(rendered.ok()) << what << expected << (rendered.ok() ? rendered->text : "");
        if (!rendered.ok()) ExpectRaised(expected, rendered.status(), what);
        continue;
      }
      if (!rendered.ok()) {
        ADD_FAILURE() << what << rendered.status();
        continue;
      }
      EXPECT_EQ(rendered->text.size(), expected[0].get<size_t>()) << what << rendered->text;
      EXPECT_EQ(Hash64(rendered->text), expected[1].get<std::string>()) << what << rendered->text;
      ExpectRanges(expected.size() > 2 ? expected[2] : Json::array(), *rendered, what);
    }
  }
}

TEST(JinjaProgramTest, ErrorsNameTheLine) {
  EXPECT_EQ(Render("a\n{{ 1 +\n}}").status(),
            absl::InvalidArgumentError("line 3: unexpected '}}'"));
  EXPECT_EQ(Render("a\n\n{{ x.y }}").status(),
            absl::InvalidArgumentError("line 3: 'x' is undefined"));
  EXPECT_EQ(Render("{% macro m() %}\n{{ 1/0 }}{% endmacro %}\n\n{{ m() }}").status(),
            absl::InvalidArgumentError("line 2: division by zero"));
  EXPECT_EQ(Render("{{ raise_exception('as it \\n is') }}").status(),
            absl::FailedPreconditionError("as it \n is"));
  EXPECT_THAT(std::string(Render("\n{{ {}.a.b }}").status().message()),
              HasSubstr("line 2: 'dict object' has no attribute 'a'"));
  EXPECT_THAT(std::string(Render("{% for x in 1 %}\n").status().message()), HasSubstr("endfor"));
}

TEST(JinjaProgramTest, RefusesWhatIsNoUtf8OrTooLong) {
  EXPECT_EQ(Render("a\xff").status(), absl::InvalidArgumentError("invalid UTF-8 at byte 1 (0xff)"));
  const std::string text(JinjaProgram::kTextBytesMax + 1, 'a');
  EXPECT_EQ(JinjaProgram::Parse(text).status().code(), absl::StatusCode::kInvalidArgument);
}

// Programs that would take forever, or all memory, or all of the stack. Each must end with an error
// that is not a crash.
TEST(JinjaProgramTest, HostileProgramsEndAtALimit) {
  const std::string repeat_brackets(100'000, '(');
  std::string sum = "1";
  for (int i = 0; i < 100'000; ++i) sum += "+1";
  std::string attributes = "x";
  for (int i = 0; i < 100'000; ++i) attributes += ".x";
  std::string nots;
  for (int i = 0; i < 100'000; ++i) nots += "not ";
  std::string ifs;
  for (int i = 0; i < 10'000; ++i) ifs += "{% if 1 %}";
  const std::string many = "{% for a in range(100000) %}{% for b in range(100000) %}";
  const std::string ends = "{% endfor %}{% endfor %}";
  const std::vector<std::string> programs = {
      "{{ " + repeat_brackets + " }}",
      "{{ " + std::string(100'000, '[') + " }}",
      "{{ " + std::string(100'000, '-') + "1 }}",
      "{{ " + sum + " }}",
      "{{ " + attributes + " }}",
      "{{ " + nots + "1 }}",
      ifs,
      "{{ 'a' * 10**12 }}",
      "{{ ('a' * 1000000) * 1000000 }}",
      "{{ [1] * 10**12 }}",
      "{{ 2 ** 100000 }}",
      "{{ 9223372036854775807 + 1 }}",
      "{{ 9223372036854775807 * 3 }}",
      "{{ -9223372036854775807 - 2 }}",
      "{{ 9223372036854775808 }}",
      "{{ range(10**12) }}",
      "{{ 'a'.ljust(10**12) }}",
      "{{ 'a'.zfill(10**12) }}",
      "{{ 'a\\tb'.expandtabs(10**12) }}",
      "{{ 'a'|center(10**12) }}",
      "{{ 'a\\nb'|indent(10**12) }}",
      "{{ '%1000000000000d' % 1 }}",
      "{{ '{:1000000000000}'.format(1) }}",
      "{{ 'a'|format|replace('', 'b' * 100000)|replace('', 'b' * 100000) }}",
      "{{ [1, 2]|batch(10**12, 0)|list }}",
      "{{ [1]|slice(10**12)|list }}",
      "{{ [1]|tojson(indent=10**12) }}",
      many + ends,
      many + "x" + ends,
      "{% set ns = namespace(x='ab') %}" + many + "{% set ns.x = ns.x ~ ns.x %}" + ends,
      "{% set ns = namespace(x=[]) %}" + many + "{% set ns.x = [ns.x, ns.x] %}" + ends,
      "{% set ns = namespace(x=[]) %}{% for i in range(150) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}{{ ns.x }}",
      "{% set ns = namespace(x=[], y=[]) %}{% for i in range(150) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
      "{% set ns = namespace(x=[]) %}{% for i in range(150) %}{% set ns.x = [ns.x, ns.x] %}"
      "{% endfor %}{{ ns.x|tojson }}",
      "{% set ns = namespace(x=(1,)) %}{% for i in range(150) %}{% set ns.x = (ns.x, ns.x) %}"
      "{% endfor %}{{ {ns.x: 1}[ns.x] }}{{ {ns.x: 1, (ns.x,): 2} }}{{ ns.x in [ns.x] }}{{ ns.x }}",
      "{% set ns = namespace(x=[1]) %}" + many + "{% set ns.x = ns.x|map('upper') %}" + ends,
      "{% set ns = namespace(x=1) %}" + many + "{% set ns.x = cycler(ns.x) %}" + ends,
      // Chains of objects that would be freed recursively.
      "{% set ns = namespace() %}" + many +
          "{% set p = ns.l %}{% for c in [1] %}{% set ns.l = loop %}"
          "{% endfor %}" +
          ends,
      "{% set ns = namespace() %}" + many +
          "{% for c in [1] %}{% set q = loop.changed(ns.l) %}"
          "{% set ns.l = [loop] %}{% endfor %}" +
          ends,
      "{% set ns = namespace() %}" + many + "{% set ns.g = [0]|map('default', ns.g, true) %}" +
          ends,
      "{% set ns = namespace() %}" + many + "{% set ns.n = namespace(n=ns.n) %}" + ends,
      "{% set ns = namespace() %}" + many +
          "{% set p = ns.m %}{% macro m() %}{{ p }}{% endmacro %}"
          "{% set ns.m = m %}" +
          ends,
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m() %}{{ m() ~ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) }}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% macro m() %}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}",
      "{{ range(100000)|map('string')|join(',' * 100000) }}",
      "{{ ('a' * 1000000).split('a')|length }}{{ ('a,' * 10000000).split(',')|length }}",
  };
  // Less than the defaults, so that the test is quick.
  JinjaOptions options;
  options.limits.steps_max = 500'000;
  options.limits.bytes_max = 16 << 20;
  for (const std::string& program : programs) {
    const absl::Status status = Render(program, {}, options).status();
    EXPECT_TRUE(status.code() == absl::StatusCode::kInvalidArgument ||
                status.code() == absl::StatusCode::kResourceExhausted)
        << program.substr(0, 200) << "\n"
        << status;
    EXPECT_LT(status.message().size(), 400u) << program.substr(0, 200);
  }
}

// Searches take time in proportion to the texts. By comparing each place they would take hours.
TEST(JinjaProgramTest, SearchesAreNotQuadratic) {
  const std::string texts =
      "{% set n = 'a' * 300000 + 'b' %}{% set m = 'b' + 'a' * 300000 %}{% set s = 'a' * 900000 %}";
  for (const char* search : {"n in s", "s.count(n)", "s.find(n)", "s.rfind(m)",
                             "s.replace(n, '')|length", "s.split(n)|length", "s.rsplit(m)|length",
                             "s.partition(n)|length", "s.rpartition(m)|length"}) {
    const auto rendered =
        Render(texts + "{% for i in range(50) %}{{ " + search + " }},{% endfor %}");
    EXPECT_TRUE(rendered.ok()) << search << ": " << rendered.status();
  }
}

TEST(JinjaProgramTest, SearchesFindTheFirstAndTheLast) {
  const auto rendered = Render(
      "{{ 'abcabcab'.find('ab') }} {{ 'abcabcab'.rfind('ab') }} {{ 'aaaa'.rfind('aa') }} "
      "{{ 'aabaab'.rfind('aab') }} {{ 'abab'.rfind('') }} {{ 'x'.rfind('ab') }} "
      "{{ ''.find('') }} {{ 'aaaa'.count('aa') }} {{ 'a-b-c'.rsplit('-', 1) }} "
      "{{ 'aXbXc'.replace('X', 'yy', 1) }} {{ 'ab'.replace('', '.') }} {{ 'b' in 'abc' }}");
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(rendered->text, "0 6 2 3 4 -1 0 2 ['a-b', 'c'] ayybXc .a.b. True");
}

TEST(JinjaProgramTest, FieldsAreFilledAsInPython) {
  const auto rendered = Render(
      "{{ '%.f' % 2.6 }}|{{ '%*d' % (-5, 42) }}|{{ 'ab\\n\\tx'.expandtabs(4) }}|"
      "{{ 'a\\tb'.expandtabs() }}|{{ '+42'.zfill(6) }}");
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(rendered->text, "3|42   |ab\n    x|a       b|+00042");
}

TEST(JinjaProgramTest, NumbersAtTheirEdgesAreAsInPython) {
  const auto rendered = Render(
      "{{ -3 > -3.5 }} {{ -3 == -3.5 }} {{ -3.5 < -3 }} {{ 2 ** 62 }} {{ 4294967296 ** 1 }} "
      "{{ '-9223372036854775808'|int }}");
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(rendered->text, "True False True 4611686018427387904 4294967296 -9223372036854775808");
}

TEST(JinjaProgramTest, SearchesBeginAndEndWhereTheyAreTold) {
  const auto rendered = Render(
      "{% set s = 'Hello, World' %}{{ s.find('o', 5, -2) }} {{ s.rfind('l', 0, -2) }} "
      "{{ s.count('o', 0, -5) }} {{ s.endswith('Worl', 2, -1) }} {{ s.find('d', 0, -1) }} "
      "{{ [1, 2, 1].index(1, -2) }} {{ [1, 2, 1].index(2, 0, -1) }}");
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(rendered->text, "8 3 1 True -1 2 1");
  EXPECT_FALSE(Render("{{ [1, 2, 3].index(3, 0, -1) }}").ok());
}

TEST(JinjaProgramTest, ControlCharactersAreEscapedAsInPython) {
  const auto rendered = Render("{{ 'a\\r\\f\\b\\t\\n\\x1b'|tojson }} {{ ['a\\r\\t\\n\\f\\x1b'] }}");
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(rendered->text,
            "\"a\\r\\f\\b\\t\\n\\u001b\" "
            "['a\\r\\t\\n\\x0c\\x1b']");
}

TEST(JinjaProgramTest, TheClockHasSundaysAndAZone) {
  JinjaOptions options;
  options.now = absl::FromCivil(absl::CivilSecond(2025, 3, 2, 23, 30, 0), absl::UTCTimeZone());
  const auto now = [&options] {
    const auto rendered = Render("{{ strftime_now('%A %a %w %d %H:%M') }}", {}, options);
    return rendered.ok() ? rendered->text : std::string(rendered.status().message());
  };
  EXPECT_EQ(now(), "Sunday Sun 0 02 23:30");
  options.zone = absl::FixedTimeZone(2 * 60 * 60);
  EXPECT_EQ(now(), "Monday Mon 1 03 01:30");
  // Whatever the machine's zone is.
  const auto seconds = Render("{{ strftime_now('%s') }}", {}, options);
  ASSERT_TRUE(seconds.ok()) << seconds.status();
  EXPECT_EQ(seconds->text, std::to_string(absl::ToUnixSeconds(options.now)));
}

TEST(JinjaProgramTest, ContainersAreEqualIfAllTheirItemsAre) {
  const auto rendered = Render(
      "{{ [1] == [1, 2] }} {{ [1, 2] == [1] }} {{ [1] != [1, 2] }} {{ (1,) == (1, 2) }} "
      "{{ {'a': 1} == {'a': 1, 'b': 2} }} {{ {'a': 1} == {'a': 2} }} {{ {'a': 1} == {'b': 1} }} "
      "{{ {'a': [1], 'b': 2} == {'b': 2, 'a': [1]} }} {{ [{'a': 1}] == [{'a': 2}] }}");
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(rendered->text, "False False True False False False False True False");
}

TEST(JinjaProgramTest, DictsOfManyEntriesHaveAllOfThem) {
  const auto rendered = Render(
      "{% set d = {'a': 1, 'b': 2, 5: 'five', 'c': 3, 'd': 4, 'e': 5, 'f': 6, 'g': 7, 'h': 8, "
      "'i': 9, 'a': 10} %}{{ d.a }} {{ d.b }} {{ d['h'] }} {{ d.i }} {{ d[5] }} {{ 'g' in d }} "
      "{{ 'z' in d }} {{ d|length }}");
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(rendered->text, "10 2 8 9 five True False 10");
}

TEST(JinjaProgramTest, PrintingNestedNamespacesEnds) {
  const auto rendered = Render(
      "{% set ns = namespace() %}{% for i in range(20000) %}{% set ns.n = namespace(n=ns.n) %}"
      "{% endfor %}{{ ns.n }}");
  EXPECT_EQ(rendered.status().message(),
            "line 1: maximum recursion depth exceeded while a value is printed");
}

TEST(JinjaProgramTest, ANamespaceIsPrintedAsOftenAsItIsAsked) {
  const auto rendered = Render("{% set ns = namespace(a=1) %}{{ ns }}{{ [ns, ns] }}");
  ASSERT_TRUE(rendered.ok()) << rendered.status();
  EXPECT_EQ(rendered->text, "<Namespace {'a': 1}>[<Namespace {'a': 1}>, <Namespace {'a': 1}>]");
}

// A value that refers to itself must not outlive the rendering. (The sanitizers see a leak.)
TEST(JinjaProgramTest, CyclesAreFreed) {
  ASSERT_TRUE(
      Render("{% set ns = namespace() %}{% set ns.me = [ns, {'a': ns}] %}"
             "{% macro m() %}{% endmacro %}{% set ns.m = m %}{% set ns.c = cycler(ns, m) %}"
             "{% for x in [1] %}{% set ns.l = loop %}{% set ns.f = loop.cycle %}{% endfor %}")
          .ok());
}

TEST(JinjaProgramTest, LimitsAreTheCallers) {
  JinjaOptions options;
  options.limits.steps_max = 100;
  EXPECT_EQ(Render("{% for i in range(1000) %}{% endfor %}", {}, options).status().message(),
            "line 1: the program took more than 100 steps");
  options = {};
  options.limits.bytes_max = 1000;
  EXPECT_EQ(Render("{{ 'a' * 1000 }}", {}, options).status().message(),
            "line 1: the program made more than 1000 bytes of values");
  options = {};
  options.limits.output_bytes_max = 10;
  EXPECT_EQ(Render("{{ 'a' * 11 }}", {}, options).status().message(),
            "line 1: the program wrote more than 10 bytes");
  EXPECT_TRUE(Render("{{ 'a' * 10 }}", {}, options).ok());
  options = {};
  options.limits.depth_max = 3;
  EXPECT_EQ(Render("{{ 1 + (2 * (3 - 4)) }}", {}, options).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(JinjaProgramTest, TellsWhatAProgramUses) {
  const auto program = JinjaProgram::Parse(
      "{% generation %}{{ strftime_now('x') }}{{ m.tools }}{{ f(documents=1) }}{{ d['key'] }}"
      "{% endgeneration %}");
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(program->has_generation());
  EXPECT_TRUE(program->uses_clock());
  for (const char* const name : {"m", "tools", "documents", "key"}) {
    EXPECT_TRUE(program->mentions(name)) << name;
  }
  EXPECT_FALSE(program->mentions("messages"));
  const auto plain = JinjaProgram::Parse("generation strftime_now");
  EXPECT_FALSE(plain->has_generation());
  EXPECT_FALSE(plain->uses_clock());
}

TEST(JinjaProgramTest, RendersFromSeveralThreads) {
  const auto program = JinjaProgram::Parse(
      "{% macro m(x) %}{{ x|upper }}{% endmacro %}{% for x in l %}{{ m(x ~ 'é') }}{% endfor %}");
  ASSERT_TRUE(program.ok()) << program.status();
  const JinjaVariables variables = ToVariables(Json::parse(R"({"l": ["a", "b", "c"]})"));
  std::vector<std::thread> threads;
  std::vector<int> right(4);
  for (int& count : right) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        const auto rendered = program->Render(variables);
        count += rendered.ok() && rendered->text == "AÉBÉCÉ";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(4, 100));
}

}  // namespace
}  // namespace megatrain
