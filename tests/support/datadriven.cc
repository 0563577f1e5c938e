#include "tests/support/datadriven.h"

#include <cstdlib>
#include <fstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace shardline::testing {
namespace {

constexpr char kRule[] = "----";

Command Parse(const std::string& text, int line) {
  Command command;
  command.line = line;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (command.name.empty()) {
      command.name = std::string(word);
      continue;
    }
    const std::vector<std::string> pair = absl::StrSplit(word, absl::MaxSplits('=', 1));
    command.arguments[pair[0]] = pair.size() > 1 ? pair[1] : "";
  }
  return command;
}

std::vector<std::string> ReadLines(const std::string& path) {
  std::ifstream in(path);
  EXPECT_TRUE(in.good()) << "cannot read " << path;
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string WithNewline(std::string text) {
  if (!text.empty() && text.back() != '\n') text += '\n';
  return text;
}

}  // namespace

std::string Command::Text(const std::string& key, const std::string& otherwise) const {
  const auto it = arguments.find(key);
  return it == arguments.end() ? otherwise : it->second;
}

uint64_t Command::Number(const std::string& key, uint64_t otherwise) const {
  const auto it = arguments.find(key);
  if (it == arguments.end()) return otherwise;
  uint64_t value = 0;
  EXPECT_TRUE(absl::SimpleAtoi(it->second, &value)) << "line " << line << ": " << key;
  return value;
}

void RunTranscript(const std::string& path,
                   const std::function<std::string(const Command&)>& execute) {
  const std::vector<std::string> lines = ReadLines(path);
  const bool rewrites = std::getenv("SL_REWRITE") != nullptr;
  std::string rewritten;
  size_t block_count = 0;
  size_t at = 0;
  while (at < lines.size()) {
    if (lines[at].empty() || lines[at][0] == '#') {
      absl::StrAppend(&rewritten, lines[at++], "\n");
      continue;
    }
    const size_t first = at;
    std::string actual;
    for (; at < lines.size() && lines[at] != kRule; ++at) {
      ASSERT_FALSE(lines[at].empty()) << path << ":" << at + 1 << ": a block without " << kRule;
      absl::StrAppend(&rewritten, lines[at], "\n");
      if (lines[at][0] == '#') continue;
      actual += WithNewline(execute(Parse(lines[at], static_cast<int>(at) + 1)));
    }
    ASSERT_LT(at, lines.size()) << path << ":" << first + 1 << ": a block without " << kRule;
    ++at;
    std::string expected;
    for (; at < lines.size() && !lines[at].empty(); ++at) {
      absl::StrAppend(&expected, lines[at], "\n");
    }
    absl::StrAppend(&rewritten, kRule, "\n", actual);
    ++block_count;
    if (!rewrites) EXPECT_EQ(actual, expected) << path << ":" << first + 1;
  }
  EXPECT_GT(block_count, 0U) << path << " tests nothing";
  if (rewrites) std::ofstream(path) << rewritten;
}

}  // namespace shardline::testing
