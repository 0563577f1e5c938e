#include "base/log.h"

#include <cmath>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace shardline {
namespace {

constexpr std::string_view kTs = "2026-01-02T03:04:05.678Z";

TEST(LogTest, TextQuotesOnlyWhatNeedsIt) {
  const LogOptions options = {.component = "node"};
  EXPECT_EQ(FormatLogLine(options, kTs, LogLevel::kWarning, "node lost",
                          {{"node", NodeId("node-b")}, {"why", "no beat\n\"1 s\""}, {"beats", 4}}),
            "2026-01-02T03:04:05.678Z warning msg=\"node lost\" component=node node=node-b "
            "why=\"no beat\\n\\\"1 s\\\"\" beats=4");
}

TEST(LogTest, JsonIsOneParsableObject) {
  const LogOptions options = {.format = LogFormat::kJson, .component = "node"};
  const std::string line = FormatLogLine(options, kTs, LogLevel::kInfo, "x\x01",
                                         {{"session", SessionId(7)}, {"ratio", 0.5}, {"ok", true}});
  const nlohmann::json json = nlohmann::json::parse(line);
  EXPECT_EQ(json["msg"], "x\x01");
  EXPECT_EQ(json["session"], 7);
  EXPECT_EQ(json["ratio"], 0.5);
  EXPECT_EQ(json["ok"], true);
}

TEST(LogTest, NotANumberIsAStringInJson) {
  const LogOptions options = {.format = LogFormat::kJson};
  const std::string line = FormatLogLine(options, kTs, LogLevel::kInfo, "x", {{"v", std::nan("")}});
  EXPECT_TRUE(nlohmann::json::parse(line)["v"].is_string());
}

}  // namespace
}  // namespace shardline
