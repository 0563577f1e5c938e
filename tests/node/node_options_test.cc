#include "node/node_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/failure.h"

namespace shardline {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<NodeCommandLine> Parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "shardline-node");
  return ParseNodeCommandLine(static_cast<int>(arguments.size()), arguments.data());
}

std::string WhyNot(std::vector<const char*> arguments) {
  const absl::Status status = Parse(std::move(arguments)).status();
  EXPECT_EQ(FailureKindOf(status), FailureKind::kInvalidRequest);
  return std::string(status.message());
}

std::string FreshDirectory(const std::string& name) {
  const std::string path = ::testing::TempDir() + "node_options_" + name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path;
}

TEST(NodeOptions, AFlagBeatsTheEnvironmentWhichBeatsTheFile) {
  const std::string config = FreshDirectory("order") + "/node.yaml";
  std::ofstream(config) << "memory: 1GiB\nthreads: 3\nnode-id: from-file\n";
  setenv("SHARDLINE_NODE_THREADS", "2", 1);
  setenv("SHARDLINE_NODE_NODE_ID", "from-env", 1);
  const auto line = Parse({"--config", config.c_str(), "--node-id", "from-flag"});
  unsetenv("SHARDLINE_NODE_THREADS");
  unsetenv("SHARDLINE_NODE_NODE_ID");
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.node_id, NodeId("from-flag"));
  EXPECT_EQ(line->options.threads, 2);
  EXPECT_EQ(line->options.memory_bytes, 1ULL << 30);
}

TEST(NodeOptions, WhatCannotBeIsNamed) {
  EXPECT_THAT(WhyNot({"--memory", "lots"}), HasSubstr("memory"));
  EXPECT_THAT(WhyNot({"--memory", "1KiB"}), HasSubstr("memory"));
  EXPECT_THAT(WhyNot({"--threads", "-1"}), HasSubstr("threads"));
  EXPECT_THAT(WhyNot({"--machine", std::string(300, 'm').c_str()}), HasSubstr("machine"));
  EXPECT_THAT(WhyNot({"--listen", "nowhere"}), HasSubstr("listen"));
  EXPECT_THAT(WhyNot({"--coordinator", "host:99999"}), HasSubstr("coordinator"));
  EXPECT_THAT(WhyNot({"--node-id", "a b"}), HasSubstr("node-id"));
  EXPECT_THAT(WhyNot({"--log-level", "loud"}), HasSubstr("log-level"));
  EXPECT_THAT(WhyNot({"--no-such-flag"}), HasSubstr("--no-such-flag"));
  EXPECT_THAT(WhyNot({"--config", "/no/such/file.yaml"}), HasSubstr("/no/such/file.yaml"));
  const std::string config = FreshDirectory("unknown") + "/node.yaml";
  std::ofstream(config) << "memroy: 1GiB\n";
  EXPECT_THAT(WhyNot({"--config", config.c_str()}), HasSubstr("memroy"));
}

TEST(NodeOptions, HelpShowsAnExampleAndEndsWell) {
  const auto line = Parse({"--help"});
  ASSERT_TRUE(line.ok()) << line.status();
  ASSERT_TRUE(line->print.has_value());
  EXPECT_THAT(*line->print, HasSubstr("Example"));
  EXPECT_THAT(*Parse({"--version"})->print, HasSubstr("shardline-node"));
}

TEST(NodeOptions, SizesAreReadWithTheirUnits) {
  EXPECT_EQ(ParseByteSize("512MiB").value(), 512ULL << 20);
  EXPECT_EQ(ParseByteSize("1.5GiB").value(), 3ULL << 29);
  EXPECT_EQ(ParseByteSize("4096").value(), 4096U);
  for (const char* text : {"", "GiB", "-1GiB", "1GB", "nan", "1e30GiB", "inf"}) {
    EXPECT_FALSE(ParseByteSize(text).ok()) << text;
  }
}

TEST(NodeOptions, ANodeKeepsItsIdAndItsDirectory) {
  const std::string directory = FreshDirectory("id") + "/data";
  const absl::StatusOr<NodeId> first = ClaimNodeId(directory);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_FALSE(first->empty());
  // The lock is this process's until it ends, even against itself.
  EXPECT_THAT(std::string(ClaimNodeId(directory).status().message()), HasSubstr("in use"));
  const std::string copy = FreshDirectory("copy");
  std::filesystem::copy(directory + "/node-id", copy + "/node-id");
  EXPECT_EQ(ClaimNodeId(copy).value(), *first);
  const std::string broken = FreshDirectory("broken");
  std::ofstream(broken + "/node-id") << "a/b\n";
  EXPECT_FALSE(ClaimNodeId(broken).ok());
}

}  // namespace
}  // namespace shardline
