// The page in the binary is the page in the tree, whole, and names nothing that is not there.

#include "coordinator/web/web_assets.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace shardline {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::filesystem::path kFolder = "coordinator/web";

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

bool IsServed(const std::filesystem::path& path) {
  const std::string ending = path.extension();
  return ending == ".html" || ending == ".css" || ending == ".js" || ending == ".svg";
}

TEST(WebAssetsTest, EveryFileOfThePageIsEmbeddedByteForByte) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (!IsServed(entry.path())) continue;
    names.insert(entry.path().filename());
    const WebAsset* asset = FindWebAsset(entry.path().filename().native());
    ASSERT_NE(asset, nullptr) << entry.path() << " is in no CMakeLists.txt: it is never served";
    EXPECT_EQ(asset->bytes, ReadFile(entry.path())) << entry.path();
  }
  EXPECT_EQ(WebAssets().size(), names.size());
}

TEST(WebAssetsTest, TagsTellContentsApartAndTypesSayTheCharset) {
  std::set<std::string_view> tags;
  for (const WebAsset& asset : WebAssets()) {
    EXPECT_TRUE(tags.insert(asset.etag).second) << asset.name;
    EXPECT_TRUE(asset.etag.starts_with('"') && asset.etag.ends_with('"')) << asset.etag;
    EXPECT_TRUE(asset.type == "image/svg+xml" || asset.type.ends_with("; charset=utf-8"))
        << asset.name << ": " << asset.type;
  }
}

TEST(WebAssetsTest, OnlyItsOwnNamesAreFound) {
  for (const char* name : {"", ".", "..", "/index.html", "../web/index.html", "web_assets.h",
                           "CMakeLists.txt", "INDEX.HTML", "index.html "}) {
    EXPECT_EQ(FindWebAsset(name), nullptr) << name;
  }
  EXPECT_NE(FindWebAsset("index.html"), nullptr);
}

// Every "/assets/x" and every import of "./x" names a file that is there.
TEST(WebAssetsTest, WhatTheFilesNameExists) {
  int seen = 0;
  for (const WebAsset& asset : WebAssets()) {
    for (const std::string_view prefix : {"/assets/", "from './"}) {
      for (size_t at = asset.bytes.find(prefix); at != std::string_view::npos;
           at = asset.bytes.find(prefix, at + 1)) {
        const std::string_view rest = asset.bytes.substr(at + prefix.size());
        const std::string_view name = rest.substr(0, rest.find_first_of("'\"#`"));
        EXPECT_NE(FindWebAsset(name), nullptr) << asset.name << " names " << name;
        ++seen;
      }
    }
  }
  EXPECT_GT(seen, 30);
}

// What a strict content security policy forbids, and what would let foreign text become markup.
TEST(WebAssetsTest, NothingInlineNothingForeignAndNoStringBecomesMarkup) {
  for (const WebAsset& asset : WebAssets()) {
    const std::string bytes(asset.bytes);
    if (asset.name.ends_with(".js")) {
      for (const char* banned : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
                                 "eval(", "new Function", "setAttribute('style'", "srcdoc"}) {
        EXPECT_THAT(bytes, Not(HasSubstr(banned))) << asset.name;
      }
    }
    if (asset.name.ends_with(".html")) {
      EXPECT_THAT(bytes, Not(HasSubstr("style="))) << asset.name;
      EXPECT_THAT(bytes, Not(HasSubstr(" on"))) << asset.name;
      EXPECT_THAT(bytes, StartsWith("<!doctype html>"));
    }
    if (asset.name.ends_with(".css")) EXPECT_THAT(bytes, Not(HasSubstr("url("))) << asset.name;
    EXPECT_THAT(bytes, Not(HasSubstr("//cdn"))) << asset.name;
  }
}

TEST(WebAssetsTest, AFileIsOneThought) {
  for (const WebAsset& asset : WebAssets()) {
    const auto lines = std::count(asset.bytes.begin(), asset.bytes.end(), '\n');
    EXPECT_LE(lines, 600) << asset.name << ": which two thoughts are these?";
  }
}

}  // namespace
}  // namespace shardline
