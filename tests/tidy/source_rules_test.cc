// What may not stand in any file, and what must.

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/tidy/source_tree.h"

namespace shardline::testing {
namespace {

constexpr size_t kColumnsMax = 100;
constexpr size_t kLinesMax = 600;

struct Ban {
  std::string_view text;
  std::string_view reason;
};

// Split so that this file does not ban itself.
constexpr Ban kBans[] = {
    {"std::re"
     "gex",
     "PCRE2 is the regular expression engine"},
    {"system_"
     "clock::now",
     "wall time is for logs only, through base/log.h"},
    {"sleep_"
     "for(",
     "sleeping is not synchronisation"},
    {"u"
     "sleep(",
     "sleeping is not synchronisation"},
    {"absl::Sleep"
     "For(",
     "sleeping is not synchronisation"},
    {"GTEST_"
     "SKIP",
     "a test that skips proves nothing"},
    {", DISABLED"
     "_",
     "a disabled test proves nothing"},
    {"TO"
     "DO",
     "an open end belongs into an issue"},
    {"FIX"
     "ME",
     "an open end belongs into an issue"},
    {"using namespace "
     "std",
     "names stay qualified"},
    {"/"
     "tmp/",
     "temporary paths come from the environment"},
};

struct Exception {
  std::string_view path;
  std::string_view text;
  std::string_view reason;
};

constexpr Exception kExceptions[] = {
    {"tests/kernels/matmul_test.cc",
     "GTEST_"
     "SKIP",
     "an instruction only some CPUs have"},
    {"tests/kernels/thread_pool_test.cc",
     "GTEST_"
     "SKIP",
     "two workers need two CPUs"},
    {"tests/golden/tokenizer_corpus.py",
     "/"
     "tmp/",
     "a string to tokenize"},
};

bool IsExcepted(std::string_view path, std::string_view text) {
  return std::any_of(std::begin(kExceptions), std::end(kExceptions),
                     [&](const Exception& e) { return e.path == path && e.text == text; });
}

TEST(SourceRulesTest, NothingBannedStandsInTheTree) {
  for (const SourceFile& file : SourceTree()) {
    for (size_t i = 0; i < file.lines.size(); ++i) {
      for (const Ban& ban : kBans) {
        if (absl::StrContains(file.lines[i], absl::string_view(ban.text.data(), ban.text.size())) &&
            !IsExcepted(file.path, ban.text)) {
          ADD_FAILURE() << file.path << ":" << i + 1 << ": '" << ban.text << "': " << ban.reason;
        }
      }
    }
  }
}

TEST(SourceRulesTest, EveryExceptionIsStillNeeded) {
  for (const Exception& exception : kExceptions) {
    const bool needed =
        std::any_of(SourceTree().begin(), SourceTree().end(), [&](const SourceFile& file) {
          return file.path == exception.path &&
                 std::any_of(file.lines.begin(), file.lines.end(), [&](const std::string& line) {
                   return line.find(exception.text) != std::string::npos;
                 });
        });
    EXPECT_TRUE(needed) << exception.path << ": " << exception.reason;
  }
}

TEST(SourceRulesTest, OurCodeDoesNotThrow) {
  for (const SourceFile& file : SourceTree()) {
    if (!IsCpp(file.path) || IsBelow(file.path, "tests")) continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string_view line = file.lines[i];
      const size_t comment = line.find("//");
      EXPECT_EQ(line.substr(0, comment).find("throw "), std::string_view::npos)
          << file.path << ":" << i + 1;
    }
  }
}

TEST(SourceRulesTest, HeadersAreGuardedAndLinesFit) {
  for (const SourceFile& file : SourceTree()) {
    if (!IsCpp(file.path)) continue;
    if (HasEnding(file.path, ".h") && !absl::EndsWith(file.path, "-inl.h")) {
      EXPECT_TRUE(std::find(file.lines.begin(), file.lines.end(), "#pragma once") !=
                  file.lines.end())
          << file.path;
    }
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      const auto columns = std::count_if(line.begin(), line.end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;  // Count characters, not bytes.
      });
      EXPECT_LE(static_cast<size_t>(columns), kColumnsMax) << file.path << ":" << i + 1;
      EXPECT_EQ(line.find('\t'), std::string::npos) << file.path << ":" << i + 1 << ": a tab";
    }
  }
}

TEST(SourceRulesTest, AFileIsOneThought) {
  for (const SourceFile& file : SourceTree()) {
    if (!IsCpp(file.path)) continue;
    EXPECT_LE(file.lines.size(), kLinesMax) << file.path << ": which two thoughts are these?";
  }
}

TEST(SourceRulesTest, EverySourceIsRegisteredInItsBuildFile) {
  for (const SourceFile& file : SourceTree()) {
    if (!HasEnding(file.path, ".cc") && !HasEnding(file.path, ".cu")) continue;
    // The nearest CMakeLists.txt upwards must name the file, relative to its own folder.
    bool found = false;
    bool registered = false;
    for (std::string_view folder = file.folder(); !folder.empty() && !found;) {
      const std::string build_file = absl::StrCat(std::string(folder), "/CMakeLists.txt");
      for (const SourceFile& candidate : SourceTree()) {
        if (candidate.path != build_file || candidate.lines.size() < 2) continue;
        const std::string name = file.path.substr(folder.size() + 1);
        found = true;
        registered = std::any_of(
            candidate.lines.begin(), candidate.lines.end(),
            [&](const std::string& line) { return line.find(name) != std::string::npos; });
      }
      const size_t slash = folder.rfind('/');
      if (found || slash == std::string_view::npos) break;
      folder = folder.substr(0, slash);
    }
    EXPECT_TRUE(registered) << file.path << " is in no CMakeLists.txt: it never runs";
  }
}

}  // namespace
}  // namespace shardline::testing
