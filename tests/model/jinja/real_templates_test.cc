// Holds the engine to Python's Jinja on the templates of real models and generated conversations,
// recorded in tests/golden/jinja (README.md beside it).
//
// Needs the templates that deploy/fetch_templates.sh brings: SHARDLINE_TEMPLATES, or
// models/templates below the source root.

#include <openssl/sha.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "model/jinja/template.h"

namespace shardline {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFolder[] = "tests/golden/jinja/";  // Tests run in the source root.
constexpr size_t kMarkDigits = 6;

std::string TemplateFolder() {
  const char* folder = std::getenv("SHARDLINE_TEMPLATES");
  return folder == nullptr ? "models/templates" : folder;
}

std::string Digest(const std::string& text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return absl::BytesToHexString(std::string(reinterpret_cast<const char*>(digest), sizeof(digest)));
}

std::vector<Json> Conversations() {
  std::ifstream file(std::string(kFolder) + "conversations.jsonl");
  std::vector<Json> conversations;
  for (std::string line; std::getline(file, line);) conversations.push_back(Json::parse(line));
  return conversations;
}

// The digest's first digits, "-" where the template refuses.
std::string MarkOf(const jinja::Template& chat, const Json& conversation, std::string* shown) {
  jinja::Variables variables;
  for (const auto& [name, value] : conversation.items()) variables.emplace_back(name, &value);
  const absl::Time now =
      absl::FromCivil(absl::CivilSecond(2026, 3, 7, 9, 5, 3), absl::UTCTimeZone());
  const absl::StatusOr<std::string> text = chat.Render(variables, now);
  *shown = text.ok() ? *text : std::string(text.status().message());
  return text.ok() ? Digest(*text).substr(0, kMarkDigits) : "-";
}

TEST(RealTemplatesTest, EveryConversationRendersAsInPython) {
  const std::vector<Json> conversations = Conversations();
  ASSERT_GE(conversations.size(), 100u);
  std::ifstream record(std::string(kFolder) + "templates.txt");
  int templates = 0;
  int rendered = 0;
  for (std::string line; std::getline(record, line); ++templates) {
    const std::vector<std::string> fields = absl::StrSplit(line, ' ');
    ASSERT_EQ(fields.size(), conversations.size() + 2);
    std::ifstream file(TemplateFolder() + "/" + fields[0] + ".jinja", std::ios::binary);
    ASSERT_TRUE(file) << fields[0] << ": run deploy/fetch_templates.sh first";
    const std::string source{std::istreambuf_iterator<char>(file), {}};
    ASSERT_EQ(Digest(source), fields[1]) << fields[0] << " is another template than recorded";
    const auto parsed = jinja::Template::Parse(source);
    ASSERT_TRUE(parsed.ok()) << fields[0] << ": " << parsed.status();
    for (size_t i = 0; i < conversations.size(); ++i) {
      std::string shown;
      const std::string mark = MarkOf(**parsed, conversations[i], &shown);
      EXPECT_EQ(mark, fields[i + 2]) << fields[0] << ", conversation " << i << ":\n" << shown;
      if (mark != "-") ++rendered;
    }
  }
  EXPECT_GE(templates, 30);
  EXPECT_GE(rendered, 2000);
}

}  // namespace
}  // namespace shardline
