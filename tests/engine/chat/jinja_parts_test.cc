#include "engine/chat/jinja_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace megatrain {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Parts(const std::string& program) {
  auto parsed = JinjaParts::Parse(program);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  std::vector<std::string> parts;
  while (parsed.ok() && !parsed->done()) {
    parts.emplace_back(parsed->next());
    EXPECT_TRUE(parsed->Take(parts.back()));
  }
  return parts;
}

TEST(JinjaParts, TagsHaveOneForm) {
  EXPECT_THAT(Parts("{%-  if not( a  and b ) or 'c'  == d -%}{{+x[ 'y' ]['z'][0]+ \"it's\" }}"),
              ElementsAre("{%if not(a and b) or 'c'==d%}", "{{x.y.z[0]+'it\\'s'}}"));
  EXPECT_THAT(Parts("{{ 'a\nb' }}{{ \"a\\nb\" }}{{ '\\'\"' }}{{ \"'\\\"\" }}"),
              ElementsAre("{{'a\\nb'}}", "{{'a\\nb'}}", "{{'\\'\"'}}", "{{'\\'\"'}}"));
  EXPECT_THAT(Parts("{{ '}}' + \"%}\" }}{% set x = {'a': {}} %}{{ {'a': {}} }}"),
              ElementsAre("{{'}}'+'%}'}}", "{%set x={'a':{}}%}", "{{{'a':{}}}}"));
  EXPECT_THAT(Parts("{{ x in ['a'] }}{{ f('[\\'a\\']') }}{{ -1 }}"),
              ElementsAre("{{x in['a']}}", "{{f('[\\'a\\']')}}", "{{-1}}"));
}

// As jinja2's Environment(trim_blocks=True, lstrip_blocks=True) leaves it.
TEST(JinjaParts, TextIsWhatIsWritten) {
  EXPECT_THAT(Parts(""), IsEmpty());
  EXPECT_THAT(Parts("\n"), IsEmpty());
  EXPECT_THAT(Parts("\r\n\n"), ElementsAre("\n"));
  EXPECT_THAT(Parts("  {% a %}\n  {% b %}\n{{c}}\n"), ElementsAre("{%a%}", "{%b%}", "{{c}}"));
  EXPECT_THAT(Parts("{{a}}\n  {% b %}"), ElementsAre("{{a}}", "\n", "{%b%}"));
  EXPECT_THAT(Parts("{{a}}  {% b %}"), ElementsAre("{{a}}", "  ", "{%b%}"));
  EXPECT_THAT(Parts("{{a}}\n  {%- b %}"), ElementsAre("{{a}}", "{%b%}"));
  EXPECT_THAT(Parts("{{a -}} \n {{b}}"), ElementsAre("{{a}}", "{{b}}"));
  EXPECT_THAT(Parts("{% a %}\n\n {{b}}"), ElementsAre("{%a%}", "\n ", "{{b}}"));
  EXPECT_THAT(Parts("{% a +%}\n  {%+ b %}"), ElementsAre("{%a%}", "\n  ", "{%b%}"));
  EXPECT_THAT(Parts("  {# x #}\n{{a}}{# y -#}  {{b}}"), ElementsAre("{{a}}", "{{b}}"));
  EXPECT_THAT(Parts("x {%- a %} y"), ElementsAre("x", "{%a%}", " y"));
}

TEST(JinjaParts, WhatHasNoEndIsRefused) {
  for (const char* program : {"{{ a", "{% a }}", "{# a", "{{ 'a }}", "{{ {'a': 1 }}", "{{ 'a\\"}) {
    EXPECT_EQ(JinjaParts::Parse(program).status().code(), absl::StatusCode::kInvalidArgument)
        << program;
  }
  EXPECT_EQ(JinjaParts::Parse("{% raw %}{{{% endraw %}").status().code(),
            absl::StatusCode::kUnimplemented);
}

TEST(JinjaParts, BranchesAreSkippedWithWhatTheyHold) {
  auto parsed = JinjaParts::Parse(
      "{% if a %}{% for b in c %}{% if d %}x{% else %}y{% endif %}{% endfor %}{% elif e %}"
      "{{ raise_exception('it\\'s') }}{{ raise_exception('a' + 'b') }}{% endif %}");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_FALSE(parsed->Take("{%if b%}"));
  EXPECT_TRUE(parsed->Take("{%if a%}"));
  EXPECT_TRUE(parsed->SkipBranch());
  EXPECT_TRUE(parsed->Take("{%elif e%}"));
  EXPECT_TRUE(parsed->TakeRaise());
  EXPECT_FALSE(parsed->TakeRaise());
  EXPECT_TRUE(parsed->SkipBranch());
  EXPECT_TRUE(parsed->Take("{%endif%}"));
  EXPECT_TRUE(parsed->done());
  EXPECT_EQ(parsed->next(), "");
  EXPECT_FALSE(parsed->SkipBranch());
}

}  // namespace
}  // namespace megatrain
