// What is refused as rules on a text, and how texts are found in it.

#include "node/sampling/text_rules.h"

#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "node/sampling/text_finder.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::HasSubstr;

TEST(TextFinderTest, FindsATextHoweverTheStreamIsCut) {
  std::mt19937 random(9);
  for (int round = 0; round < 3000; ++round) {
    const auto draw = [&](uint32_t length) {
      std::string out;
      for (uint32_t i = 0; i < length; ++i) out += random() % 2 == 0 ? 'a' : 'b';
      return out;
    };
    const std::string wanted = draw(1 + random() % 6);
    const std::string stream = draw(random() % 30);
    TextFinder finder(wanted);
    for (size_t at = 0; at < stream.size();) {
      const size_t count = std::min<size_t>(1 + random() % 4, stream.size() - at);
      at += count;
      const bool is_there = stream.substr(0, at).find(wanted) != std::string::npos;
      ASSERT_EQ(finder.Read(std::string_view(stream).substr(at - count, count)), is_there)
          << wanted << " in " << stream;
    }
  }
}

std::string ErrorOf(TextRulesSpec spec) {
  const auto rules = CompileTextRules(std::move(spec));
  EXPECT_THAT(rules, FailsWith(FailureKind::kInvalidRequest));
  return std::string(rules.status().message());
}

TEST(TextRulesTest, BadRulesAreRefusedByName) {
  EXPECT_THAT(ErrorOf({.grammar = "root ::= \"a"}), HasSubstr("grammar 1:10"));
  EXPECT_THAT(ErrorOf({.trigger = "x"}), HasSubstr("rules.trigger"));
  EXPECT_THAT(ErrorOf({.grammar = "root ::= \"a\"", .trigger = std::string(300, 'x')}),
              HasSubstr("trigger"));
  EXPECT_THAT(ErrorOf({.stop_texts = {"a", ""}}), HasSubstr("rules.stop_texts"));
  EXPECT_THAT(ErrorOf({.stop_texts = {std::string(2000, 'x')}}), HasSubstr("2000 bytes"));
  EXPECT_THAT(ErrorOf({.stop_texts = std::vector<std::string>(65, "x")}), HasSubstr("65 texts"));
}

TEST(TextRulesTest, NothingAskedIsNothing) {
  const auto rules = CompileTextRules({});
  ASSERT_THAT(rules, IsOk());
  EXPECT_TRUE(rules->empty());
}

}  // namespace
}  // namespace shardline::testing
