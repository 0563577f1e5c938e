// A template from a stranger ends, in bounded memory, and says which limit it met.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/jinja/template.h"

namespace shardline {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// Small, so that the tests are quick under a sanitizer.
constexpr jinja::Limits kSmall = {
    .steps_max = 200'000, .bytes_max = 1 << 20, .output_bytes_max = 1 << 18, .depth_max = 200};

std::string Outcome(const std::string& source, const jinja::Limits& limits = kSmall) {
  const auto parsed = jinja::Template::Parse(source);
  if (!parsed.ok()) return std::string(parsed.status().message());
  const auto text = (*parsed)->Render({}, absl::UnixEpoch(), limits);
  return text.ok() ? "ok: " + *text : std::string(text.status().message());
}

std::string Repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(JinjaLimitsTest, NestedLoopsRunOutOfSteps) {
  EXPECT_THAT(Outcome("{% for a in range(999) %}{% for b in range(999) %}"
                      "{% endfor %}{% endfor %}"),
              HasSubstr("too many steps"));
  // A filter that lets nothing through is a loop as well.
  EXPECT_THAT(Outcome("{% for a in range(1000) if not range(1000) | list %}{% endfor %}"),
              HasSubstr("too many steps"));
}

TEST(JinjaLimitsTest, ARangeHasAnEnd) {
  EXPECT_THAT(Outcome("{{ range(10 ** 18) | list }}"), HasSubstr("longer than 100000"));
  EXPECT_EQ(Outcome("{{ range(100000) | length }}", jinja::Limits()), "ok: 100000");
  EXPECT_THAT(Outcome("{{ range(100001) | length }}", jinja::Limits()),
              HasSubstr("longer than 100000"));
}

TEST(JinjaLimitsTest, TextsThatGrowRunOutOfMemoryBeforeTheyAreMade) {
  for (const char* source :
       {"{{ 'a' * 10 ** 9 }}", "{{ 10 ** 9 * 'a' }}", "{{ [1] * 10 ** 15 }}",
        "{{ 'a'.center(10 ** 12) }}", "{{ 'a'.ljust(10 ** 12) }}", "{{ 'a'.zfill(10 ** 12) }}",
        "{{ 'a' | indent(10 ** 12) }}", "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
        "{{ [1] | batch(10 ** 15, 0) | list }}", "{{ ('b' * 100000).join('a' * 1000) }}",
        "{{ ('%9999d' * 9999) % 1 }}"}) {
    EXPECT_THAT(Outcome(source),
                testing::AnyOf(HasSubstr("too much memory"), HasSubstr("too many steps"),
                               HasSubstr("not enough arguments")))
        << source;
  }
  EXPECT_THAT(Outcome("{% set ns = namespace(t='a') %}{% for i in range(60) %}"
                      "{% set ns.t = ns.t + ns.t %}{% endfor %}"),
              HasSubstr("too much memory"));
}

TEST(JinjaLimitsTest, MemoryThatIsGivenBackCountsNoLonger) {
  // 20 times a quarter of the limit.
  EXPECT_EQ(Outcome("{% for i in range(20) %}{% set x = 'a' * 250000 %}{% endfor %}ok"), "ok: ok");
}

TEST(JinjaLimitsTest, OutputRunsFull) {
  EXPECT_THAT(Outcome("{% for i in range(1000) %}" + Repeated("0123456789", 100) + "{% endfor %}"),
              HasSubstr("writes too much text"));
}

TEST(JinjaLimitsTest, MacrosThatCallThemselvesAreStopped) {
  EXPECT_THAT(Outcome("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
              HasSubstr("recurses too deeply"));
  EXPECT_THAT(Outcome("{{ 'a' | map(" + Repeated("'map',", 5000) + "'upper') | list }}"),
              HasSubstr("recurses too deeply"));
}

TEST(JinjaLimitsTest, NestingInTheSourceIsBounded) {
  const int deep = 50'000;
  EXPECT_THAT(Outcome("{{ " + Repeated("(", deep) + "1" + Repeated(")", deep) + " }}"),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(Outcome("{{ " + Repeated("[", deep) + "1" + Repeated("]", deep) + " }}"),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(Outcome("{{ " + Repeated("not ", deep) + "1 }}"), HasSubstr("nested too deeply"));
  EXPECT_THAT(Outcome("{{ " + Repeated("-", deep) + "1 }}"), HasSubstr("nested too deeply"));
  EXPECT_THAT(Outcome("{{ 1" + Repeated("|int", deep) + " }}"), HasSubstr("nested too deeply"));
  EXPECT_THAT(Outcome("{{ 1" + Repeated("+1", deep) + " }}"), HasSubstr("nested too deeply"));
  EXPECT_THAT(Outcome("{{ 1" + Repeated(" if 1 else 1", deep) + " }}"),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(Outcome(Repeated("{% if 1 %}", deep)), HasSubstr("nested too deeply"));
  EXPECT_THAT(Outcome("{% for " + Repeated("(", deep) + "x" + Repeated(")", deep) + " in y %}"),
              HasSubstr("nested too deeply"));
}

TEST(JinjaLimitsTest, ValuesThatNestOrShareTheirPartsAreBounded) {
  EXPECT_THAT(Outcome("{% set ns = namespace(l=[]) %}{% for i in range(9999) %}"
                      "{% set ns.l = [ns.l] %}{% endfor %}"),
              HasSubstr("nested too deeply"));
  // 2 ** 60 parts, were each one walked.
  EXPECT_THAT(Outcome("{% set ns = namespace(l=(1,)) %}{% for i in range(60) %}"
                      "{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ ns.l == (ns.l, 1) }}"),
              HasSubstr("too large"));
}

TEST(JinjaLimitsTest, RingsOfNamespacesAndMacrosAreTakenApart) {
  // The address sanitizer tells if they are not.
  EXPECT_EQ(Outcome("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}"
                    "{% macro m() %}{{ a.m is defined }}{% endmacro %}{% set a.m = m %}{{ m() }}"
                    "{% for i in [1] %}{% set a.loop = loop %}{% set a.c = loop.changed %}"
                    "{{ loop.changed(loop) }}{% endfor %}"),
            "ok: TrueTrue");
  EXPECT_THAT(Outcome("{% set a = namespace() %}{% for i in [1] %}{% set a.c = loop.changed %}"
                      "{% endfor %}{{ a.c(a.c) }}"),
              HasSubstr("the loop is over"));
}

TEST(JinjaLimitsTest, IntegersThatOverflowFail) {
  EXPECT_THAT(Outcome("{{ 9223372036854775807 + 1 }}"), HasSubstr("too large"));
  EXPECT_THAT(Outcome("{{ 2 ** 64 }}"), HasSubstr("too large"));
  EXPECT_THAT(Outcome("{{ -9223372036854775807 - 2 }}"), HasSubstr("too large"));
  EXPECT_EQ(Outcome("{{ (-9223372036854775807 - 1) // -1 if 0 else 'x'[9223372036854775807:] }}"),
            "ok: ");
  EXPECT_THAT(Outcome("{{ (-9223372036854775807 - 1) // -1 }}"), HasSubstr("too large"));
  EXPECT_EQ(Outcome("{{ 'abc'[::-9223372036854775807 - 1] }}"), "ok: c");
}

TEST(JinjaLimitsTest, EveryLimitErrorHasAPlace) {
  EXPECT_THAT(Outcome("\n{{ 'a' * 10 ** 9 }}"), MatchesRegex("2:[0-9]+: .*"));
}

}  // namespace
}  // namespace shardline
