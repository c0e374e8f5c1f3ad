// The example configuration is one that the daemon takes, and shows its defaults.
#include <gtest/gtest.h>

#include "server/config/daemon_config.h"
#include "server/metrics/metrics_address.h"

namespace megatrain {
namespace {

TEST(ConfigurationTest, TheExampleIsWhatHoldsWithoutIt) {
  const auto config = ReadDaemonConfig("deploy/systemd/megatraind.yaml", {});
  ASSERT_TRUE(config.ok()) << config.status();
  const DaemonConfig defaults;
  EXPECT_EQ(config->listen, defaults.listen);
  EXPECT_EQ(config->metrics_listen, kDefaultMetricsAddress);
  EXPECT_EQ(config->state_directory, defaults.state_directory);
  EXPECT_EQ(config->host_memory, defaults.host_memory);
  EXPECT_EQ(config->device, defaults.device);
  EXPECT_EQ(config->threads, defaults.threads);
  EXPECT_EQ(config->administrators, defaults.administrators);
  EXPECT_EQ(config->tls_certificate, defaults.tls_certificate);
  EXPECT_EQ(config->tls_key, defaults.tls_key);
  EXPECT_EQ(config->tls_client_ca, defaults.tls_client_ca);
  EXPECT_EQ(config->tokens_file, defaults.tokens_file);
  EXPECT_EQ(config->log_level, defaults.log_level);
}

}  // namespace
}  // namespace megatrain
