// The example configuration is one that the daemon takes, and shows every key at its default.
#include <gtest/gtest.h>

#include <string>

#include "engine/base/file.h"
#include "engine/config/config_reader.h"
#include "server/config/daemon_keys.h"
#include "server/metrics/metrics_server.h"

namespace megatrain {
namespace {

constexpr char kExample[] = "deploy/systemd/megatraind.yaml";

TEST(ConfigurationTest, TheExampleIsWhatHoldsWithoutIt) {
  auto config = ReadDaemonConfig(kExample, {});
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->metrics_listen, kDefaultMetricsAddress);
  config->metrics_listen.reset();
  config->roots.reset();  // named, for the daemon's paths are the unit's
  DaemonConfig defaults;
  const ConfigTable is = DaemonKeys(&*config), should = DaemonKeys(&defaults);
  for (size_t i = 0; i < is.keys.size(); ++i) {
    EXPECT_EQ(is.keys[i].value.text(), should.keys[i].value.text()) << is.keys[i].path;
  }
}

TEST(ConfigurationTest, TheExampleHasEveryKey) {
  DaemonConfig config;
  const ConfigTable table = DaemonKeys(&config);
  const std::string text = ReadWholeFile(PosixFileSystem(), kExample, 1 << 20).value();
  const GivenKeys given = ReadConfig(table, text, kExample, {}).value();
  const std::string header = text.substr(0, text.find("\n\n"));
  for (const ConfigKey& key : table.keys) {
    EXPECT_TRUE(given.contains(key.path)) << key.path;
    // The header names the keys and sections that a reload takes over.
    const std::string name = key.path.substr(0, key.path.find('.'));
    EXPECT_EQ(header.find(" " + name) != std::string::npos, key.may_change) << key.path;
  }
}

}  // namespace
}  // namespace megatrain
