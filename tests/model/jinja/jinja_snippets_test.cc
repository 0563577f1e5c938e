// Holds the engine to Python's Jinja on small templates, recorded in tests/golden/jinja (README.md
// beside it).

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/jinja/template.h"

namespace shardline {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

// Tests run in the source root.
constexpr char kSnippets[] = "tests/golden/jinja/snippets.jsonl";

// What strftime_now showed when the record was made.
absl::Time RecordedNow() {
  return absl::FromCivil(absl::CivilSecond(2026, 3, 7, 9, 5, 3), absl::UTCTimeZone());
}

absl::StatusOr<std::string> Render(const std::string& source, const Json& named) {
  auto parsed = jinja::Template::Parse(source);
  if (!parsed.ok()) return parsed.status();
  jinja::Variables variables;
  for (const auto& [name, value] : named.items()) variables.emplace_back(name, &value);
  return (*parsed)->Render(variables, RecordedNow());
}

std::string ErrorOf(const std::string& source) {
  const absl::StatusOr<std::string> text = Render(source, Json::object());
  EXPECT_FALSE(text.ok()) << source;
  return std::string(text.status().message());
}

TEST(JinjaSnippetsTest, EverySnippetRendersAsInPython) {
  std::ifstream file(kSnippets);
  std::string line;
  ASSERT_TRUE(std::getline(file, line)) << kSnippets;
  const Json variables = Json::parse(line);
  int count = 0;
  for (; std::getline(file, line); ++count) {
    const Json entry = Json::parse(line);
    const std::string source = entry[0].get<std::string>();
    const absl::StatusOr<std::string> text = Render(source, variables);
    if (entry[1].is_null()) {
      EXPECT_FALSE(text.ok()) << source << "\nrendered as " << *text << "\nbut fails in Python";
    } else {
      EXPECT_EQ(text.ok() ? *text : text.status().ToString(), entry[1].get<std::string>())
          << source;
    }
  }
  EXPECT_GT(count, 600);
}

TEST(JinjaSnippetsTest, AnErrorNamesTheLineAndColumnWhereItHappened) {
  EXPECT_EQ(ErrorOf("{{ 1 + }}"), "1:8: expected an expression, found '}}'");
  EXPECT_EQ(ErrorOf("a\n  {{ nope.x }}"), "2:10: 'nope' is undefined");
  EXPECT_EQ(ErrorOf("日本{{ 'x' + 1 }}"), "1:10: unsupported operands for +: str and int");
  EXPECT_EQ(ErrorOf("{% if true %}\n{{ raise_exception('roles must alternate') }}{% endif %}"),
            "2:19: roles must alternate");
}

TEST(JinjaSnippetsTest, TheInnermostPlaceOfAnErrorIsTheOneTold) {
  EXPECT_EQ(ErrorOf("{% macro m(x) %}\n{{ x | int / 0 }}{% endmacro %}\n{{ m(1) }}"),
            "2:12: division by zero");
}

TEST(JinjaSnippetsTest, WhatIsNotSupportedFailsByNameWhenItIsReached) {
  EXPECT_THAT(ErrorOf("{{ 'x' | wordcount }}"), HasSubstr("the filter 'wordcount' is unknown"));
  EXPECT_THAT(ErrorOf("{{ 'x' is lower }}"), HasSubstr("the test 'lower' is unknown"));
  EXPECT_THAT(ErrorOf("{{ 'x'.encode() }}"), HasSubstr("this method of str is not supported"));
  EXPECT_THAT(ErrorOf("{% include 'x' %}"), HasSubstr("'{% include %}' is unknown"));
  EXPECT_THAT(ErrorOf("{{ f(*x) }}"), HasSubstr("arguments with * are not supported"));
  EXPECT_THAT(*Render("{% if false %}{{ 'x' | wordcount }}{% endif %}ok", Json::object()), "ok");
}

TEST(JinjaSnippetsTest, NothingOfTheVariablesCanBeChanged) {
  EXPECT_THAT(ErrorOf("{% set l = [1] %}{{ l.append(2) }}"), HasSubstr("cannot be changed"));
  EXPECT_THAT(ErrorOf("{% set d = {} %}{{ d.update({1: 2}) }}"), HasSubstr("cannot be changed"));
  EXPECT_THAT(*Render("{{ ''.__class__ is defined }}", Json::object()), "False");
}

TEST(JinjaSnippetsTest, BytesThatAreNoUtf8AreRefused) {
  EXPECT_THAT(ErrorOf("a\xFF"), HasSubstr("not valid UTF-8"));
  const absl::StatusOr<std::string> text = Render("{{ x }}", Json({{"x", "a\xC0\x80"}}));
  EXPECT_THAT(std::string(text.status().message()), HasSubstr("not valid UTF-8"));
}

TEST(JinjaSnippetsTest, AVariableThatTheTemplateDoesNotNameIsNotEvenLookedAt) {
  EXPECT_EQ(*Render("ok", Json({{"x", "a\xFF"}})), "ok");
}

}  // namespace
}  // namespace shardline
