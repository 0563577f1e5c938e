#include "coordinator/gateway/stop_hold.h"

#include <random>

#include "coordinator/gateway/utf8_repair.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

std::string Streamed(StopHold& hold, const std::vector<std::string>& pieces) {
  std::string out;
  for (const std::string& piece : pieces) out += hold.Push(piece);
  return out + hold.Flush();
}

TEST(StopHold, AStopTextOverThreePiecesIsFoundAndNothingOfItShows) {
  StopHold hold({"DEFGHIJ"}, false);
  EXPECT_EQ(hold.Push("ABCD"), "ABC");
  EXPECT_EQ(hold.Push("EFG"), "");
  EXPECT_EQ(hold.Push("HIJKL"), "");
  EXPECT_TRUE(hold.stopped());
  EXPECT_EQ(hold.Push("more"), "");
  EXPECT_EQ(hold.Flush(), "");
}

TEST(StopHold, TextBeforeAStopTextInTheMiddleOfAWordShows) {
  StopHold hold({"own fox"}, false);
  EXPECT_EQ(Streamed(hold, {"The quick brown", " f", "ox jumps"}), "The quick br");
}

TEST(StopHold, WhatOnlyBeganLikeAStopTextComesOutAtOnce) {
  StopHold hold({"abc"}, false);
  EXPECT_EQ(hold.Push("xab"), "x");
  EXPECT_EQ(hold.Push("ab"), "ab");
  EXPECT_EQ(hold.Push("d"), "abd");
  EXPECT_EQ(hold.Push("a"), "");
  EXPECT_EQ(hold.Flush(), "a");
  EXPECT_FALSE(hold.stopped());
}

TEST(StopHold, OfThoseThatEndTogetherTheLongestCounts) {
  StopHold hold({"b", "ab"}, false);
  EXPECT_EQ(Streamed(hold, {"xab"}), "x");
  EXPECT_EQ(hold.stop_text(), "ab");
}

TEST(StopHold, TheStopTextShowsIfAskedFor) {
  StopHold hold({"own"}, true);
  EXPECT_EQ(Streamed(hold, {"br", "o", "wn fox"}), "brown");
}

TEST(StopHold, WithoutStopTextsNothingIsHeld) {
  StopHold hold({}, false);
  EXPECT_EQ(hold.Push("abc"), "abc");
}

// The first position at which some stop text ends, less the longest of those.
std::string Oracle(const std::string& text, const std::vector<std::string>& stops, bool include) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return text.substr(0, include ? end : end - longest);
  }
  return text;
}

TEST(StopHold, AnyCutGivesWhatANaiveSearchGives) {
  std::mt19937 random(7);
  const std::vector<std::string> letters = {"a", "b", "a", "b", "\xC3\xA9", "\xC3\xA8"};
  const auto draw = [&](size_t length) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text += letters[random() % letters.size()];
    return text;
  };
  int stopped = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::string> stops;
    for (uint32_t i = 1 + random() % 4; i > 0; --i) stops.push_back(draw(1 + random() % 6));
    const bool include = random() % 4 == 0;
    StopHold hold(stops, include);
    std::string text;
    std::string out;
    for (int i = 0; i < 6; ++i) {
      const std::string piece = draw(random() % 5);
      text += piece;
      const std::string shown = hold.Push(piece);
      ASSERT_EQ(RepairUtf8(shown), shown) << "cut inside a character";
      out += shown;
      // Nothing is out that a stop text could still take back.
      ASSERT_TRUE(Oracle(text, stops, include).starts_with(out));
    }
    out += hold.Flush();
    ASSERT_EQ(out, Oracle(text, stops, include));
    stopped += hold.stopped() ? 1 : 0;
  }
  EXPECT_GT(stopped, 2000);
  EXPECT_LT(stopped, 18'000);
}

TEST(RepairUtf8, EveryBadByteIsOneReplacement) {
  const std::string r = "\uFFFD";
  EXPECT_EQ(RepairUtf8("\xC0\x80"), r + r);
  EXPECT_EQ(RepairUtf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(RepairUtf8("\xF5\x80\x80\x80"), r + r + r + r);
  EXPECT_EQ(RepairUtf8("\xF4\x90\x80\x80"), r + r + r + r);
  EXPECT_EQ(RepairUtf8("a\xE6"), "a" + r);
  EXPECT_EQ(RepairUtf8("a\xE6\xADz"), "a" + r + r + "z");
}

TEST(RepairUtf8, GoodTextPassesUnchanged) {
  std::string all;
  for (const char* text : {"a", "\u00E9", "\u6B6A", "\U0001F60A", "\uFFFD", "\uD7FF", "\uE000",
                           "\U0010FFFF", "e\u0301", "\U0001F468\u200D\U0001F469"}) {
    EXPECT_EQ(RepairUtf8(text), text);
    all += text;
  }
  EXPECT_EQ(RepairUtf8(all), all);
  EXPECT_EQ(Utf8Length("a\u00E9\U0001F60A"), 3u);
}

}  // namespace
}  // namespace shardline
