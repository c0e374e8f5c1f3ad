#include "engine/config/yaml_tree.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace megatrain {
namespace {

using ::testing::HasSubstr;

std::string Refusal(const std::string& text) {
  absl::StatusOr<YamlNode> root = ParseYaml(text, "f.yaml");
  return root.ok() ? "accepted" : std::string(root.status().message());
}

TEST(YamlTreeTest, NodesKnowTheirLines) {
  absl::StatusOr<YamlNode> root = ParseYaml("a: 1\nb:\n  - x\n  - {c: \"2\"}\nd:\n", "f.yaml");
  ASSERT_TRUE(root.ok()) << root.status();
  ASSERT_EQ(root->kind, YamlNode::Kind::kMap);
  EXPECT_EQ(root->Find("a")->scalar, "1");
  EXPECT_EQ(root->Find("a")->where, "f.yaml:1");
  const YamlNode* list = root->Find("b");
  ASSERT_EQ(list->items.size(), 2u);
  EXPECT_EQ(list->items[1].Find("c")->where, "f.yaml:4");
  EXPECT_TRUE(list->items[1].Find("c")->quoted);
  EXPECT_FALSE(list->items[0].quoted);
  EXPECT_EQ(root->Find("d")->kind, YamlNode::Kind::kNull);
  EXPECT_EQ(root->Find("e"), nullptr);
  root = ParseYaml("a: null\nb: ~\nc: \"null\"\nd: '~'\n", "f.yaml");
  ASSERT_TRUE(root.ok()) << root.status();
  for (const char* const nothing : {"a", "b"}) {
    EXPECT_EQ(root->Find(nothing)->kind, YamlNode::Kind::kNull) << nothing;
  }
  for (const char* const text : {"c", "d"}) {
    EXPECT_EQ(root->Find(text)->kind, YamlNode::Kind::kScalar) << text;
  }
}

TEST(YamlTreeTest, WhatIsInABlockIsAText) {
  const absl::StatusOr<YamlNode> root = ParseYaml("a: |\n  1\nb: >\n  null\nc: 1\n", "f.yaml");
  ASSERT_TRUE(root.ok()) << root.status();
  for (const char* const text : {"a", "b"}) {
    EXPECT_EQ(root->Find(text)->kind, YamlNode::Kind::kScalar) << text;
    EXPECT_TRUE(root->Find(text)->quoted) << text;
  }
  EXPECT_EQ(root->Find("a")->scalar, "1\n");
  EXPECT_FALSE(root->Find("c")->quoted);
}

TEST(YamlTreeTest, EmptyDocumentsAreNull) {
  for (const char* text : {"", "# only a comment\n", "---\n", "\n\n"}) {
    absl::StatusOr<YamlNode> root = ParseYaml(text, "f.yaml");
    ASSERT_TRUE(root.ok()) << root.status();
    EXPECT_EQ(root->kind, YamlNode::Kind::kNull) << text;
  }
}

TEST(YamlTreeTest, WhatIsRefused) {
  EXPECT_EQ(Refusal("a: 1\nb: 2\na: 3\n"),
            "f.yaml:3: the key a is given twice (first at f.yaml:1)");
  EXPECT_THAT(Refusal("a: &x 1\nb: *x\n"), HasSubstr("f.yaml:2: aliases"));
  EXPECT_THAT(Refusal("a: &x {c: 1}\nb:\n  <<: *x\n"), HasSubstr("aliases"));
  EXPECT_THAT(Refusal("a: !!int 1\n"), HasSubstr("tag"));
  EXPECT_THAT(Refusal("a: !!seq [1]\n"), HasSubstr("tag"));
  EXPECT_THAT(Refusal("a: 1\nb: !mine {c: 1}\n"), HasSubstr("f.yaml:2: the tag !mine"));
  EXPECT_THAT(Refusal("? [a, b]\n: 1\n"), HasSubstr("a key must be a word"));
  for (const char* const key : {"~", "null"}) {
    EXPECT_EQ(Refusal(std::string("a: 1\n") + key + ": 1\n"),
              "f.yaml:2: a key is missing before ':'");
  }
  EXPECT_THAT(Refusal("a: 1\n---\nb: 2\n"), HasSubstr("more than one YAML document"));
  EXPECT_THAT(Refusal("a: [1, 2\n"), HasSubstr("f.yaml:"));
  EXPECT_THAT(Refusal("a: b: c\n"), HasSubstr("f.yaml:1"));
  EXPECT_THAT(Refusal("\ta: 1\n"), HasSubstr("f.yaml"));
  EXPECT_EQ(Refusal("a: \xff\xfe\n"), "f.yaml: not UTF-8 text");
  EXPECT_EQ(Refusal(std::string("a: \0b\n", 6)), "f.yaml: not UTF-8 text");
  for (const char* const text : {R"("x\0y")", R"(["\x00"])", R"({"b\u0000": 1})"}) {
    EXPECT_EQ(Refusal(std::string("c: 1\na: ") + text + "\n"),
              "f.yaml:2: a text may not have a zero byte")
        << text;
  }
}

TEST(YamlTreeTest, Limits) {
  EXPECT_THAT(Refusal(std::string(30, '[') + std::string(30, ']')), HasSubstr("nested deeper"));
  EXPECT_NE(Refusal(std::string(100000, '[')), "accepted");
  EXPECT_NE(Refusal(std::string(100000, '{')), "accepted");
  std::string dashes;
  for (int i = 0; i < 50000; ++i) dashes += "- ";
  EXPECT_NE(Refusal(dashes), "accepted");
  std::string many = "[";
  for (int i = 0; i < 25000; ++i) many += "1,";
  EXPECT_THAT(Refusal(many + "]"), HasSubstr("more than 20000 values"));
  std::string keys;
  for (int i = 0; i < 600; ++i) keys += "k" + std::to_string(i) + ": 1\n";
  EXPECT_THAT(Refusal(keys), HasSubstr("more than 500 keys"));
  EXPECT_THAT(Refusal(std::string(kYamlBytesMax + 1, ' ')), HasSubstr("bytes long"));
}

TEST(YamlTreeTest, WhatJustReachesALimitIsRead) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(Refusal(nested(kYamlDepthMax)), "accepted");
  EXPECT_EQ(Refusal(nested(kYamlDepthMax + 1)), "f.yaml:1: nested deeper than 16 levels");
  const auto list = [](size_t values) {
    std::string text = "[1";
    for (size_t i = 1; i < values; ++i) text += ",1";
    return text + "]";
  };
  EXPECT_EQ(Refusal(list(kYamlNodesMax)), "accepted");
  EXPECT_THAT(Refusal(list(kYamlNodesMax + 1)), HasSubstr("more than 20000 values"));
  std::string keys;
  for (size_t i = 0; i < kYamlKeysOfMapMax; ++i) keys += "k" + std::to_string(i) + ": 1\n";
  EXPECT_EQ(Refusal(keys), "accepted");
  EXPECT_THAT(Refusal(keys + "k: 1\n"), HasSubstr("more than 500 keys"));
}

}  // namespace
}  // namespace megatrain
