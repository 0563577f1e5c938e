#include <stdlib.h>

#include <fstream>
#include <string>
#include <vector>

#include "coordinator/coordinator_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

using ::testing::HasSubstr;

CoordinatorCommand Parse(std::vector<const char*> args) {
  args.insert(args.begin(), "shardline-coordinator");
  return ParseCoordinatorCommand(static_cast<int>(args.size()), args.data());
}

TEST(CoordinatorOptions, FlagsWinOverEnvironmentWhichWinsOverTheFile) {
  const std::string path = ::testing::TempDir() + "/coordinator.yaml";
  std::ofstream(path) << "listen: 10.0.0.1:1\ndata-dir: from-file\nshards: 3\nlease: 9s\n";
  setenv("SHARDLINE_COORDINATOR_DATA_DIR", "from-environment", 1);
  setenv("SHARDLINE_COORDINATOR_LISTEN", "10.0.0.2:2", 1);
  const CoordinatorCommand command = Parse({"--config", path.c_str(), "--listen", "10.0.0.3:3"});
  unsetenv("SHARDLINE_COORDINATOR_DATA_DIR");
  unsetenv("SHARDLINE_COORDINATOR_LISTEN");
  ASSERT_TRUE(command.run) << command.text;
  EXPECT_EQ(command.options.listen, "10.0.0.3:3");
  EXPECT_EQ(command.options.data_dir, "from-environment");
  EXPECT_EQ(command.options.shards, 3u);
  EXPECT_EQ(command.options.lease, absl::Seconds(9));
}

TEST(CoordinatorOptions, WrongWordsAreUsageErrorsThatNameTheFlag) {
  const std::string path = ::testing::TempDir() + "/wrong.yaml";
  std::ofstream(path) << "lisen: 10.0.0.1:1\n";
  CoordinatorCommand command = Parse({"--config", path.c_str()});
  EXPECT_EQ(command.exit_code, 2);
  EXPECT_THAT(command.text, HasSubstr("lisen"));
  command = Parse({"--lease", "soon"});
  EXPECT_EQ(command.exit_code, 2);
  EXPECT_THAT(command.text, HasSubstr("--lease"));
  command = Parse({"--heartbeat", "1s", "--lease", "1s"});
  EXPECT_EQ(command.exit_code, 2);
  EXPECT_THAT(command.text, HasSubstr("twice"));
  command = Parse({"--replan-after", "-1s"});
  EXPECT_EQ(command.exit_code, 2);
  EXPECT_THAT(command.text, HasSubstr("--replan-after"));
  EXPECT_EQ(Parse({"--frobnicate"}).exit_code, 2);
  EXPECT_EQ(Parse({"--listen", "nowhere"}).exit_code, 2);
  EXPECT_EQ(Parse({"--config", "/nonexistent/x.yaml"}).exit_code, 2);
}

TEST(CoordinatorOptions, HttpIsServedOnLoopbackUnlessToldOtherwise) {
  EXPECT_EQ(Parse({}).options.http, "127.0.0.1:8080");
  EXPECT_EQ(Parse({"--http", "off"}).options.http, "");
  const CoordinatorCommand command =
      Parse({"--http", "[::1]:0", "--http-insecure", "--http-ping", "0", "--http-return", "1m"});
  ASSERT_TRUE(command.run) << command.text;
  EXPECT_TRUE(command.options.http_insecure);
  EXPECT_EQ(command.options.http_ping, absl::ZeroDuration());
  EXPECT_EQ(command.options.http_return, absl::Minutes(1));
}

TEST(CoordinatorOptions, HttpOptionsThatCannotBeAreRefusedByName) {
  EXPECT_THAT(Parse({"--http", "nowhere"}).text, HasSubstr("--http"));
  EXPECT_THAT(Parse({"--tls-cert", "a.pem"}).text, HasSubstr("--tls-key"));
  EXPECT_THAT(Parse({"--tls-key", "a.pem"}).text, HasSubstr("--tls-cert"));
  EXPECT_THAT(Parse({"--http-connections", "0"}).text, HasSubstr("--http-connections"));
  EXPECT_THAT(Parse({"--http-ping", "-1s"}).text, HasSubstr("--http-ping"));
  EXPECT_THAT(Parse({"--http-return", "11m"}).text, HasSubstr("--http-return"));
}

TEST(CoordinatorOptions, PrefixesAreCachedUnlessToldOtherwise) {
  EXPECT_TRUE(Parse({}).options.prefix_cache);
  EXPECT_FALSE(Parse({"--prefix-cache", "off"}).options.prefix_cache);
  setenv("SHARDLINE_COORDINATOR_PREFIX_CACHE", "off", 1);
  EXPECT_FALSE(Parse({}).options.prefix_cache);
  EXPECT_TRUE(Parse({"--prefix-cache", "on"}).options.prefix_cache);
  unsetenv("SHARDLINE_COORDINATOR_PREFIX_CACHE");
  EXPECT_EQ(Parse({"--prefix-cache", "maybe"}).exit_code, 2);
}

TEST(CoordinatorOptions, ARestoreIsAskedForByHandAlone) {
  EXPECT_FALSE(Parse({}).options.restore_term.has_value());
  EXPECT_EQ(Parse({"--restore", "0"}).options.restore_term, 0u);
  EXPECT_EQ(Parse({"--restore=41"}).options.restore_term, 41u);
  EXPECT_EQ(Parse({"--restore"}).exit_code, 2);
  EXPECT_EQ(Parse({"--restore", "18446744073709551615"}).exit_code, 2);
  setenv("SHARDLINE_COORDINATOR_RESTORE", "5", 1);
  EXPECT_FALSE(Parse({}).options.restore_term.has_value());
  unsetenv("SHARDLINE_COORDINATOR_RESTORE");
  const std::string path = ::testing::TempDir() + "/restore.yaml";
  std::ofstream(path) << "restore: 5\n";
  const CoordinatorCommand command = Parse({"--config", path.c_str()});
  EXPECT_EQ(command.exit_code, 2);
  EXPECT_THAT(command.text, HasSubstr("restore"));
}

TEST(CoordinatorOptions, ReplanningIsSwitchedOffByWaitingForEver) {
  EXPECT_EQ(Parse({}).options.replan_after, absl::Seconds(1));
  EXPECT_EQ(Parse({"--replan-after", "inf"}).options.replan_after, absl::InfiniteDuration());
}

TEST(CoordinatorOptions, HelpShowsAnExample) {
  const CoordinatorCommand command = Parse({"--help"});
  EXPECT_FALSE(command.run);
  EXPECT_EQ(command.exit_code, 0);
  EXPECT_THAT(command.text, HasSubstr("shardctl status"));
}

}  // namespace
}  // namespace shardline
