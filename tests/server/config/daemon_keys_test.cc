#include "server/config/daemon_keys.h"

#include <string>

#include "engine/config/config_schema.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/config/schema_check.h"
#include "tests/engine/config/table_checks.h"

namespace megatrain {
namespace {

using ::testing::Contains;

TEST(DaemonKeysTest, EachIsReadAtItsBoundsAndRefusedBeyondThem) {
  DaemonConfig config;
  CheckBounds(DaemonKeys(&config), "");
}

TEST(DaemonKeysTest, TheSchemaHasEach) {
  DaemonConfig config;
  CheckSchema(DaemonKeys(&config));
}

TEST(DaemonKeysTest, TheSchemaRefusesAddressesThatTheDaemonRefuses) {
  DaemonConfig config;
  const auto wrong = [schema = JsonSchema(DaemonKeys(&config))](const std::string& yaml) {
    return WrongBySchema(schema, YamlToJson(ParseYaml(yaml, "f.yaml").value()));
  };
  EXPECT_EQ(wrong("listen: [\"unix:/a\", \"unix:/b\"]"), "");
  for (const char* yaml : {"listen: []", "listen: [\"unix:/a\", \"unix:/a\"]",
                           "listen: [\"unix:a\"]", "metrics_listen: \"9464\""}) {
    EXPECT_NE(wrong(yaml), "") << yaml;
    EXPECT_FALSE(ParseDaemonConfig(yaml, "f.yaml", {}).ok()) << yaml;
  }
}

TEST(DaemonKeysTest, TheReadmeListsEach) {
  DaemonConfig config;
  EXPECT_THAT(YamlBlocks("deploy/README.md"), Contains(ConfigListing(DaemonKeys(&config))));
}

TEST(DaemonKeysTest, TheListingHasTheDefaults) {
  DaemonConfig defaults;
  const std::string listing = ConfigListing(DaemonKeys(&defaults));
  const YamlNode root = ParseYaml(listing, "listing").value();
  EXPECT_EQ(WrongBySchema(JsonSchema(DaemonKeys(&defaults)), YamlToJson(root)), "");
  const absl::StatusOr<DaemonConfig> config = ParseDaemonConfig(listing, "listing", {});
  ASSERT_TRUE(config.ok()) << config.status();
  DaemonConfig read = *config;
  // What is found at start has a default that can be written down, and none in the struct.
  EXPECT_EQ(read.metrics_listen, "127.0.0.1:9464");
  EXPECT_THAT(*read.roots, testing::ElementsAre("/srv/megatrain"));
  read.metrics_listen.reset();
  read.roots.reset();
  const ConfigTable is = DaemonKeys(&read), should = DaemonKeys(&defaults);
  for (size_t i = 0; i < is.keys.size(); ++i) {
    EXPECT_EQ(is.keys[i].value.text(), should.keys[i].value.text()) << is.keys[i].path;
  }
}

}  // namespace
}  // namespace megatrain
