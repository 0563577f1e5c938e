// The automaton against a plain reading of the same grammar.

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/grammar/gbnf_syntax.h"
#include "model/grammar/grammar.h"
#include "model/grammar/grammar_walk.h"
#include "model/tokenizer/utf8.h"
#include "tests/support/status_matchers.h"

namespace shardline::testing {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const Grammar> Parsed(std::string_view gbnf, std::string_view trigger = {}) {
  auto grammar = Grammar::Parse(gbnf, trigger);
  EXPECT_THAT(grammar, IsOk()) << gbnf;
  return *std::move(grammar);
}

GrammarWalk::Place Walk(GrammarWalk& walk, std::string_view text) {
  GrammarWalk::Place place = walk.start();
  for (const char byte : text) place = walk.Next(place, static_cast<uint8_t>(byte));
  return place;
}

bool Matches(std::string_view gbnf, std::string_view text) {
  GrammarWalk walk(Parsed(gbnf));
  return walk.CanEnd(Walk(walk, text));
}

bool Begins(std::string_view gbnf, std::string_view text) {
  GrammarWalk walk(Parsed(gbnf));
  return Walk(walk, text) != GrammarWalk::kNowhere;
}

std::string ErrorOf(std::string_view gbnf) {
  const auto grammar = Grammar::Parse(gbnf);
  EXPECT_EQ(FailureKindOf(grammar.status()), FailureKind::kInvalidRequest) << gbnf;
  return std::string(grammar.status().message());
}

// Where a reading of a node that begins at each of `from` may end: straight from the definition.
class Oracle {
 public:
  Oracle(const GbnfTree& tree, std::string_view text) : tree_(tree), text_(text) {}

  bool Matches() { return Ends(tree_.rules[tree_.root].body, {0}).contains(text_.size()); }

 private:
  using Positions = std::set<size_t>;

  Positions Ends(size_t index, const Positions& from) {
    const GbnfNode& node = tree_.nodes[index];
    Positions out;
    switch (node.kind) {
      case GbnfNode::Kind::kLiteral:
        for (const size_t at : from) {
          if (text_.substr(at, node.bytes.size()) == node.bytes) out.insert(at + node.bytes.size());
        }
        return out;
      case GbnfNode::Kind::kClass:
        for (size_t at : from) {
          if (at >= text_.size()) continue;
          const int32_t code_point = NextCodePoint(text_, &at);
          if (code_point >= 0 && Contains(node.set, static_cast<uint32_t>(code_point))) {
            out.insert(at);
          }
        }
        return out;
      case GbnfNode::Kind::kRule:
        return from.empty() ? out : Ends(tree_.rules[node.rule].body, from);
      case GbnfNode::Kind::kSequence:
        out = from;
        for (const size_t child : node.children) out = Ends(child, out);
        return out;
      case GbnfNode::Kind::kChoice:
        for (const size_t child : node.children) out.merge(Ends(child, from));
        return out;
      case GbnfNode::Kind::kRepeat: {
        Positions now = from;
        Positions seen;
        for (uint32_t i = 0; i <= node.max && !now.empty(); ++i) {
          if (i >= node.min) {
            Positions fresh;
            std::set_difference(now.begin(), now.end(), seen.begin(), seen.end(),
                                std::inserter(fresh, fresh.end()));
            seen.merge(Positions(now));
            if (fresh.empty()) break;
          }
          if (i < node.max) now = Ends(node.children.front(), now);
        }
        return seen;
      }
    }
    return out;
  }

  const GbnfTree& tree_;
  const std::string_view text_;
};

// A small grammar over a and b, of rules that may call later ones first and any after a letter.
std::string DrawGrammar(std::mt19937& random) {
  const auto draw = [&](uint32_t count) { return random() % count; };
  const uint32_t rules = 1 + draw(4);
  std::string out;
  for (uint32_t rule = 0; rule < rules; ++rule) {
    absl::StrAppend(&out, rule == 0 ? "root" : absl::StrCat("r", rule), " ::= ");
    const uint32_t alternatives = 1 + draw(3);
    for (uint32_t i = 0; i < alternatives; ++i) {
      if (i > 0) out += " | ";
      const uint32_t items = draw(4);
      for (uint32_t j = 0; j < items; ++j) {
        const char* const kItems[] = {"\"a\"", "\"b\"", "[ab]", "\"ab\"", "(\"a\" | \"b\"?)", "."};
        const uint32_t callee = draw(rules);
        const bool calls = draw(3) == 0 && callee > 0;
        absl::StrAppend(&out, calls ? absl::StrCat("r", callee) : std::string(kItems[draw(6)]));
        const char* const kRepeats[] = {"", "", "", "*", "+", "?", "{2}", "{1,2}", "{0,7}", "{2,}"};
        absl::StrAppend(&out, kRepeats[draw(10)], " ");
      }
    }
    out += "\n";
  }
  return out;
}

TEST(GrammarTest, ReadsWhatAPlainReadingReads) {
  std::mt19937 random(7);
  int grammars = 0;
  int matches = 0;
  int too_ambiguous = 0;
  for (int round = 0; round < 600; ++round) {
    const std::string gbnf = DrawGrammar(random);
    const auto grammar = Grammar::Parse(gbnf);
    if (!grammar.ok()) continue;  // Left-recursive, or without an end.
    ++grammars;
    GbnfTree tree = *ParseGbnf(gbnf);
    GrammarWalk walk(*grammar);
    for (uint32_t length = 0; length <= 7; ++length) {
      for (uint32_t bits = 0; bits < 1U << length; ++bits) {
        std::string text;
        for (uint32_t i = 0; i < length; ++i) text += (bits >> i & 1) != 0 ? 'a' : 'b';
        const bool expected = Oracle(tree, text).Matches();
        matches += expected;
        const bool found = walk.CanEnd(Walk(walk, text));
        if (!walk.met_limit()) {
          ASSERT_EQ(found, expected) << gbnf << "\n" << text;
        }
      }
    }
    too_ambiguous += walk.met_limit();
  }
  EXPECT_LT(too_ambiguous, 10);
  EXPECT_GT(grammars, 200);
  EXPECT_GT(matches, 1000);
}

TEST(GrammarTest, WhateverIsBegunCanBeCompleted) {
  std::mt19937 random(8);
  for (int round = 0; round < 200; ++round) {
    const auto grammar = Grammar::Parse(DrawGrammar(random));
    if (!grammar.ok()) continue;
    GrammarWalk walk(*grammar);
    std::set<GrammarWalk::Place> seen = {walk.start()};
    std::vector<GrammarWalk::Place> todo = {walk.start()};
    std::vector<std::pair<GrammarWalk::Place, GrammarWalk::Place>> steps;
    while (!todo.empty() && seen.size() < 200) {
      const GrammarWalk::Place place = todo.back();
      todo.pop_back();
      for (const char byte : {'a', 'b'}) {
        const GrammarWalk::Place next = walk.Next(place, static_cast<uint8_t>(byte));
        if (next == GrammarWalk::kNowhere) continue;
        steps.emplace_back(place, next);
        if (seen.insert(next).second) todo.push_back(next);
      }
    }
    if (!todo.empty()) continue;  // Too many places to look at all.
    std::set<GrammarWalk::Place> completes;
    for (const GrammarWalk::Place place : seen) {
      if (walk.CanEnd(place)) completes.insert(place);
    }
    for (size_t size = 0; size != completes.size();) {
      size = completes.size();
      for (const auto& [from, to] : steps) {
        if (completes.contains(to)) completes.insert(from);
      }
    }
    EXPECT_EQ(completes, seen);
  }
}

TEST(GrammarTest, KnowsTheWordsOfGbnf) {
  EXPECT_TRUE(
      Matches("root ::= \"a\\n\\t\\\\\\\"\\x41\\u00e9\\U0001F600\"", "a\n\t\\\"A\u00e9\U0001F600"));
  EXPECT_TRUE(Matches("# first\nroot ::= x-1 # and\n  | y_2\nx-1 ::= \"x\"\ny_2 ::= \"y\"", "y"));
  EXPECT_TRUE(Matches("root ::=\n  (\"a\" |\n   \"b\")+\n", "abba"));
  EXPECT_TRUE(Matches("root ::= [a-c\\]^-]*", "abc]^-"));
  EXPECT_FALSE(Matches("root ::= [a-c]", "d"));
  EXPECT_TRUE(Matches("root ::= [^a\\n]", "\u20ac"));
  EXPECT_FALSE(Matches("root ::= [^a\\n]", "\n"));
  EXPECT_TRUE(Matches("root ::= .{2}", "\u20ac\n"));
  EXPECT_TRUE(Matches("root ::= \"\"", ""));
  EXPECT_TRUE(Matches("root ::= | \"a\"", ""));
  EXPECT_TRUE(Matches("root ::= \"a\"{2, 3}", "aaa"));
  EXPECT_FALSE(Matches("root ::= \"a\"{2,3}", "a"));
  EXPECT_FALSE(Matches("root ::= \"a\"{2,3}", "aaaa"));
  EXPECT_TRUE(Matches("root ::= [\u03b1-\u03c9]+", "\u03bb\u03bf\u03b3"));
}

TEST(GrammarTest, AClassIsOfCharactersAndNeverOfHalfOnes) {
  EXPECT_TRUE(Begins("root ::= [^a]", "\xe2\x82"));
  EXPECT_FALSE(Matches("root ::= [^a]", "\xe2\x82"));
  EXPECT_FALSE(Begins("root ::= .", "\xff"));
  EXPECT_FALSE(Begins("root ::= .", "\xc0"));
  EXPECT_FALSE(Begins("root ::= .", "\xe0\x80"));
  EXPECT_FALSE(Begins("root ::= .", "\xed\xa0"));  // A surrogate.
  EXPECT_FALSE(Begins("root ::= .", "\xf4\x90"));  // Beyond the last one.
}

TEST(GrammarTest, ErrorsSayWhere) {
  EXPECT_THAT(ErrorOf("root ::= \"a"), HasSubstr("1:10: this literal is never closed"));
  EXPECT_THAT(ErrorOf("root ::= [a"), HasSubstr("1:10: this '[' is never closed"));
  EXPECT_THAT(ErrorOf("root ::= \"x\"\nroot ::= (\"a\" "),
              HasSubstr("2:1: rule 'root' is there twice"));
  EXPECT_THAT(ErrorOf("a ::= \"x\"\nroot ::= (\"a\" "),
              HasSubstr("2:10: this '(' is never closed"));
  EXPECT_THAT(ErrorOf("root ::= a\n  b"), HasSubstr("2:4: '::='"));
  EXPECT_THAT(ErrorOf("root ::= nobody"), HasSubstr("1:10: there is no rule 'nobody'"));
  EXPECT_THAT(ErrorOf("a ::= \"x\""), HasSubstr("there is no rule 'root'"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("there is no rule 'root'"));
  EXPECT_THAT(ErrorOf("root ::= * \"a\""), HasSubstr("1:10: there is nothing before '*'"));
  EXPECT_THAT(ErrorOf("root ::= [z-a]"), HasSubstr("1:11: a range that runs backwards"));
  EXPECT_THAT(ErrorOf("root ::= \"\\q\""), HasSubstr("1:11: an unknown escape"));
  EXPECT_THAT(ErrorOf("root ::= \"\\x4\""), HasSubstr("hexadecimal"));
  EXPECT_THAT(ErrorOf("root ::= \"\\ud800\""), HasSubstr("surrogate"));
  EXPECT_THAT(ErrorOf("root ::= \"\\U00110000\""), HasSubstr("U+10FFFF"));
  EXPECT_THAT(ErrorOf("root ::= \"a\"{3,2}"), HasSubstr("at most less than at least"));
  EXPECT_THAT(ErrorOf("root ::= \"a\"{x}"), HasSubstr("{m,n}"));
  EXPECT_THAT(ErrorOf("root ::= \"\xff\""), HasSubstr("not UTF-8"));
  EXPECT_THAT(ErrorOf("root ::= \"a\" )"), HasSubstr("')' without '('"));
  EXPECT_THAT(ErrorOf("root = \"a\""), HasSubstr("'::='"));
}

TEST(GrammarTest, LeftRecursionIsRefusedByName) {
  EXPECT_THAT(ErrorOf("root ::= root \"a\" | \"b\""), HasSubstr("'root' is left-recursive"));
  EXPECT_THAT(ErrorOf("root ::= x\nx ::= y\ny ::= \"\" x \"b\" | \"c\""), HasSubstr("'x'"));
  // Behind what may be nothing.
  EXPECT_THAT(ErrorOf("root ::= ws root \"a\" | \"b\"\nws ::= \" \"*"), HasSubstr("'root'"));
  EXPECT_TRUE(Matches("root ::= \"a\" root | \"b\"", "aab"));
  EXPECT_TRUE(Matches("root ::= ((\"a\"*)*)* \"b\"", "aab"));
}

TEST(GrammarTest, ARootThatNeverEndsIsRefused) {
  EXPECT_THAT(ErrorOf("root ::= \"a\" root"), HasSubstr("no text of rule 'root' ever ends"));
  EXPECT_THAT(ErrorOf("root ::= \"a\" []"), HasSubstr("ever ends"));
  // A way without an end is never taken.
  EXPECT_FALSE(Begins("root ::= \"a\" x | \"b\"\nx ::= \"a\" x", "a"));
}

TEST(GrammarTest, SizesHaveLimits) {
  EXPECT_THAT(ErrorOf(std::string(kGrammarBytesMax + 1, ' ')), HasSubstr("bytes, at most"));
  EXPECT_THAT(ErrorOf("root ::= ((\"a\"{1000}){1000}){999999999}"), HasSubstr("states"));
  EXPECT_THAT(ErrorOf("root ::= " + std::string(100, '(') + "\"a\"" + std::string(100, ')')),
              HasSubstr("nested more than"));
  EXPECT_THAT(ErrorOf("root ::= \"a\"" + std::string(100000, '*')), HasSubstr("repetitions"));
  EXPECT_TRUE(Begins("root ::= (\"a\"{1000}){1000}", std::string(100000, 'a')));
}

TEST(GrammarTest, ManyRepetitionsCostOneStateEach) {
  const auto grammar = Parsed("root ::= [^\"\\\\]{0,2000}");
  EXPECT_LT(grammar->state_count(), 4100);
}

TEST(GrammarWalkTest, RecursionInTheLastPlaceNeedsNoDepth) {
  GrammarWalk walk(Parsed("root ::= \"a\" root | \"b\""));
  EXPECT_TRUE(walk.CanEnd(Walk(walk, std::string(10 * kGrammarDepthMax, 'a') + "b")));
}

TEST(GrammarWalkTest, ATextNestsAsDeepAsTheLimitAndNoDeeper) {
  GrammarWalk walk(Parsed("root ::= \"[\" root? \"]\""));
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(walk.CanEnd(Walk(walk, nested(1000))));
  EXPECT_EQ(Walk(walk, std::string(kGrammarDepthMax + 2, '[')), GrammarWalk::kNowhere);
  EXPECT_FALSE(walk.met_limit());
}

TEST(GrammarWalkTest, ATextThatMayEndAndGoOnNeedNotEnd) {
  GrammarWalk walk(Parsed("root ::= \"a\" \"b\"?"));
  EXPECT_FALSE(walk.CanEnd(walk.start()));
  EXPECT_TRUE(walk.CanEnd(Walk(walk, "a")));
  EXPECT_FALSE(walk.MustEnd(Walk(walk, "a")));
  EXPECT_TRUE(walk.MustEnd(Walk(walk, "ab")));
  EXPECT_FALSE(walk.MustEnd(GrammarWalk::kNowhere));
}

// Each level doubles the ways to read the text.
TEST(GrammarWalkTest, TooManyReadingsAreToldAndCostNoMore) {
  std::string gbnf = "root ::= r0 \"x\"\n";
  for (int i = 0; i < 40; ++i) {
    absl::StrAppend(&gbnf, "r", i, " ::= r", i + 1, " \"a\" | r", i + 1, " \"b\"\n");
  }
  GrammarWalk walk(Parsed(gbnf + "r40 ::= \"c\"\n"));
  EXPECT_TRUE(walk.met_limit());
  EXPECT_EQ(walk.start(), GrammarWalk::kNowhere);
}

TEST(GrammarWalkTest, WhatIsForgottenIsFoundAgain) {
  const auto grammar =
      Parsed("root ::= item{0,9000}\nitem ::= \"[\" item \"]\" | [acegikmoqsuwyACEGIKMOQSUWY]");
  GrammarWalk walk(grammar);
  GrammarWalk other(grammar);
  GrammarWalk::Place place = walk.start();
  GrammarWalk::Place expected = other.start();
  int forgotten = 0;
  std::mt19937 random(3);
  int depth = 0;
  for (int i = 0; i < 30000; ++i) {
    const bool opens = random() % 2 == 0 && depth < 50;
    const char byte = opens ? '[' : 'k';
    std::string text(1, byte);
    depth += opens;
    if (!opens) {
      text += std::string(static_cast<size_t>(depth), ']');
      depth = 0;
    }
    for (const char c : text) {
      place = walk.Next(place, static_cast<uint8_t>(c));
      expected = other.Next(expected, static_cast<uint8_t>(c));
      if (other.met_limit()) break;
      ASSERT_EQ(place == GrammarWalk::kNowhere, expected == GrammarWalk::kNowhere);
      ASSERT_EQ(walk.CanEnd(place), other.CanEnd(expected));
    }
    if (place == GrammarWalk::kNowhere || other.met_limit()) break;
    forgotten += walk.Forget(&place);
  }
  EXPECT_GE(forgotten, 2);
  EXPECT_FALSE(walk.met_limit());
}

TEST(GrammarTriggerTest, TheGrammarBeginsBehindTheFirstTrigger) {
  GrammarWalk walk(Parsed("root ::= \"{}\"", "<<tool>"));
  for (const char* free : {"", "any \xff text", "<<<tool", "<<tool{}", "<tool>{{"}) {
    EXPECT_TRUE(walk.CanEnd(Walk(walk, free))) << free;
    EXPECT_TRUE(walk.AwaitsTrigger(Walk(walk, free))) << free;
  }
  EXPECT_FALSE(walk.CanEnd(Walk(walk, "abc<<<tool>")));
  EXPECT_TRUE(walk.MustEnd(Walk(walk, "abc<<<tool>{}")));
  EXPECT_EQ(Walk(walk, "<<tool>x"), GrammarWalk::kNowhere);
}

TEST(GrammarTriggerTest, FindsTheTriggerInAnyText) {
  std::mt19937 random(5);
  for (const std::string trigger : {"a", "ab", "aab", "abab", "aabaab"}) {
    GrammarWalk walk(Parsed("root ::= [ab]* \"!\"", trigger));
    for (int round = 0; round < 500; ++round) {
      std::string text;
      for (uint32_t i = random() % 20; i > 0; --i) text += random() % 2 == 0 ? 'a' : 'b';
      EXPECT_EQ(walk.AwaitsTrigger(Walk(walk, text)), text.find(trigger) == std::string::npos)
          << trigger << " in " << text;
    }
  }
}

}  // namespace
}  // namespace shardline::testing
