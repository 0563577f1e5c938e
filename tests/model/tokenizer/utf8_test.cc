#include "model/tokenizer/utf8.h"

#include <string>

#include "gtest/gtest.h"

namespace shardline {
namespace {

constexpr char kReplacement[] = "\uFFFD";

TEST(MakeLenient, ValidTextStaysAsItIs) {
  const std::string text = std::string("a\u00e9\u6b6a\U0001f60a\n", 11) + '\0';
  EXPECT_EQ(MakeLenient(text).text, text);
  EXPECT_EQ(MakeLenient(text).subject, text);
}

TEST(MakeLenient, EachStrayByteBecomesOneReplacement) {
  EXPECT_EQ(MakeLenient("\xE6\xAD").text, std::string(kReplacement) + kReplacement);
  EXPECT_EQ(MakeLenient("\x80z\xFF").text, kReplacement + std::string("z") + kReplacement);
  EXPECT_EQ(MakeLenient("\xE6z").text, std::string(kReplacement) + "z");
}

TEST(MakeLenient, ValuesPastUnicodeAreFourStrayBytes) {
  std::string four;
  for (int i = 0; i < 4; ++i) four += kReplacement;
  EXPECT_EQ(MakeLenient("\xF5\x80\x80\x80").text, four);
  EXPECT_EQ(MakeLenient("\xF4\x90\x80\x80").text, four);
}

TEST(MakeLenient, OverlongFormsBecomeShort) {
  EXPECT_EQ(MakeLenient("\xC0\x80").text, std::string(1, '\0'));
  EXPECT_EQ(MakeLenient("\xE0\x80\xAF").text, "/");
}

TEST(MakeLenient, SurrogatesStayInTheTextButNotInTheSubject) {
  const LenientText lenient = MakeLenient("\xED\xA0\x80");
  EXPECT_EQ(lenient.text, "\xED\xA0\x80");
  EXPECT_EQ(lenient.subject, "\xEE\x80\x80");
}

TEST(MakeLenient, CharactersNewerThanTheMatcherHaveOlderOnesStandIn) {
  const std::string text = "\U0001E030\U00011F50\U00011B00\U00031350";
  EXPECT_EQ(MakeLenient(text).text, text);
  EXPECT_EQ(MakeLenient(text).subject, "\U00020000\U0001D7D8\U00010100\U00020000");
}

}  // namespace
}  // namespace shardline
