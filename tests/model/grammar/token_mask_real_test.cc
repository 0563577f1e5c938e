// What masks cost over a real vocabulary.

#include <algorithm>
#include <ctime>
#include <iostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "model/gguf_file.h"
#include "model/grammar/json_schema.h"
#include "model/grammar/token_mask.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/tokenizer_keys.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_model.h"

namespace shardline::testing {
namespace {

TEST(TokenMaskRealTest, FollowsTokensOfARealModelAndPrintsWhatMasksCost) {
  const absl::StatusOr<GgufFile> file = GgufFile::Open(TestModelPath());
  ASSERT_THAT(file, IsOk());
  TokenizerSpec spec = *ReadTokenizerSpec(file->metadata());
  const auto tokenizer = *Tokenizer::Create(spec);
  const auto trie = std::make_shared<const TokenTrie>(*Vocabulary::CreateByType(&spec));
  const std::string text =
      R"({"name":"Ada Lovelace","year": 1843, "notes":["first program","engine \"analytical\""]})";
  const std::vector<int32_t> tokens = *tokenizer->Encode(text, {});
  const auto grammar = *Grammar::Parse(*GrammarOfJsonSchema(nlohmann::ordered_json::parse(
      R"({"properties":{"name":{"type":"string"},"year":{"type":"integer"},
          "notes":{"type":"array","items":{"type":"string","maxLength":80}}},
          "required":["name","year","notes"]})")));
  TokenMask mask(grammar, trie, std::vector<int32_t>{2});
  std::vector<double> micros;
  for (const int32_t token : tokens) {
    const std::clock_t begin = std::clock();
    const TokenMask::Words& words = mask.Allowed();
    micros.push_back(static_cast<double>(std::clock() - begin) * 1e6 / CLOCKS_PER_SEC);
    ASSERT_TRUE((words[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0)
        << tokenizer->TokenBytes(token);
    mask.Accept(token);
  }
  EXPECT_TRUE(mask.MustEnd());
  std::sort(micros.begin(), micros.end());
  std::cout << "token_mask_us, of CPU time: median " << micros[micros.size() / 2] << ", 90th "
            << micros[micros.size() * 9 / 10] << ", worst " << micros.back() << " of "
            << micros.size() << " tokens; " << trie->nodes().size() << " nodes\n";
}

}  // namespace
}  // namespace shardline::testing
