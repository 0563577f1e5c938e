// Holds the tokenizer to llama.cpp's ids, recorded in tests/golden/tokenizer (README.md there).
//
// Needs the SmolLM2 model file: SHARDLINE_TEST_MODEL, or models/ below the source root. To check
// another model by hand, record it with make_tokenizer_golden.py --model and set
// SHARDLINE_TOKENIZER_GOLDEN to the record and SHARDLINE_TOKENIZER_MODEL to the file.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "model/gguf_file.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/tokenizer_keys.h"
#include "tests/support/status_matchers.h"

namespace shardline {
namespace {

constexpr char kFolder[] = "tests/golden/tokenizer/";  // Tests run in the source root.

std::string EnvOr(const char* name, const std::string& fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : value;
}

std::string SmolLm2Path() {
  return EnvOr("SHARDLINE_TEST_MODEL", "models/SmolLM2-135M-Instruct.Q4_1.gguf");
}

// Undoes the corpus' escapes: \xHH.
std::string Unescape(const std::string& line) {
  std::string bytes;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      bytes.push_back(line[i]);
      continue;
    }
    bytes += absl::HexStringToBytes(line.substr(i + 2, 2));
    i += 3;
  }
  return bytes;
}

std::vector<std::string> Lines(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << "cannot read " << path;
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> Corpus() {
  std::vector<std::string> corpus = Lines(std::string(kFolder) + "corpus.txt");
  for (std::string& line : corpus) line = Unescape(line);
  return corpus;
}

// FNV-1a, 64 bits, as text; the record keeps its first digits.
std::string Fnv(std::string_view bytes) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001B3;
  return absl::StrFormat("%016x", hash);
}

void AppendPacked(const std::vector<int32_t>& ids, std::string* out) {
  const auto append = [out](uint32_t id) {
    for (int shift = 0; shift < 32; shift += 8) out->push_back(static_cast<char>(id >> shift));
  };
  for (const int32_t id : ids) append(static_cast<uint32_t>(id));
  append(0xFFFFFFFF);
}

struct Golden {
  std::map<std::string, std::string> head;
  std::vector<std::string> lines;  // One a string of the corpus: hash of ids, verdict on decode.
};

Golden ReadGolden(const std::string& path) {
  Golden golden;
  bool in_head = true;
  for (const std::string& line : Lines(path)) {
    if (!in_head) {
      golden.lines.push_back(line);
    } else if (line.empty()) {
      in_head = false;
    } else {
      golden.head.insert(absl::StrSplit(line, absl::MaxSplits(' ', 1)));
    }
  }
  return golden;
}

std::optional<bool> Flag(const Golden& golden, const std::string& key, std::optional<bool> other) {
  const auto found = golden.head.find(key);
  if (found == golden.head.end()) return other;
  return found->second == "absent" ? std::nullopt : std::optional<bool>(found->second == "true");
}

// The vocabulary that the head names, changed as it says.
absl::StatusOr<TokenizerSpec> ReadSpec(const Golden& golden) {
  const std::string& vocabulary = golden.head.at("vocabulary");
  std::string path = std::string(kFolder) + vocabulary + ".gguf";
  if (vocabulary == "smollm2") path = SmolLm2Path();
  if (vocabulary == "file") path = EnvOr("SHARDLINE_TOKENIZER_MODEL", "");
  SL_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  SL_ASSIGN_OR_RETURN(TokenizerSpec spec, ReadTokenizerSpec(file.metadata()));
  if (golden.head.count("merges") > 0) {
    size_t sparse = 0;
    EXPECT_TRUE(absl::SimpleAtoi(golden.head.at("merges").substr(sizeof("sparse")), &sparse));
    size_t rank = 0;
    std::erase_if(spec.merges, [&](const std::string&) { return rank++ % sparse == 0; });
  }
  if (golden.head.count("name") > 0) spec.model_name = golden.head.at("name");
  spec.add_bos = Flag(golden, "add_bos_token", spec.add_bos);
  spec.add_eos = Flag(golden, "add_eos_token", spec.add_eos);
  spec.add_space_prefix = Flag(golden, "add_space_prefix", spec.add_space_prefix);
  return spec;
}

void ExpectAsRecorded(const Tokenizer& tokenizer, const Golden& golden,
                      const std::vector<std::string>& corpus) {
  std::vector<int32_t> ends;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.IsEndOfGeneration(id)) ends.push_back(id);
  }
  EXPECT_EQ(absl::StrJoin(ends, ","), golden.head.at("end_ids"));
  ASSERT_EQ(golden.lines.size(), corpus.size());
  int failures = 0;
  for (size_t i = 0; i < corpus.size() && failures < 20; ++i) {
    SCOPED_TRACE(absl::StrCat("string ", i, ": \"", absl::CHexEscape(corpus[i]), "\""));
    const auto plain = tokenizer.Encode(corpus[i], {});
    const auto special = tokenizer.Encode(corpus[i], {.add_special = true, .parse_special = true});
    ASSERT_THAT(plain, testing::IsOk());
    ASSERT_THAT(special, testing::IsOk());
    std::string packed;
    AppendPacked(*plain, &packed);
    AppendPacked(*special, &packed);
    const std::vector<std::string> fields = absl::StrSplit(golden.lines[i], ' ');
    const auto describe = [&](const std::vector<int32_t>& ids) {
      return absl::StrJoin(ids, " ", [&](std::string* out, int32_t id) {
        absl::StrAppend(out, id, "\"", absl::CHexEscape(std::string(tokenizer.TokenBytes(id))),
                        "\"");
      });
    };
    EXPECT_EQ(Fnv(packed).substr(0, fields[0].size()), fields[0])
        << "plain:   " << describe(*plain) << "\nspecial: " << describe(*special);
    if (fields.size() > 1) {
      const auto decoded = tokenizer.Decode(*plain, /*show_special=*/false);
      ASSERT_THAT(decoded, testing::IsOk());
      if (fields[1] == "=") {
        EXPECT_EQ(absl::CHexEscape(*decoded), absl::CHexEscape(corpus[i]));
      } else {
        EXPECT_EQ(Fnv(*decoded).substr(0, fields[1].size()), fields[1])
            << "decoded: \"" << absl::CHexEscape(*decoded) << "\" from " << describe(*plain);
      }
    }
    failures += ::testing::Test::HasNonfatalFailure() ? 1 : 0;
  }
}

class TokenizerGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(TokenizerGolden, IdsAndTextEqualTheReferences) {
  const Golden golden = ReadGolden(GetParam());
  const absl::StatusOr<TokenizerSpec> spec = ReadSpec(golden);
  ASSERT_TRUE(spec.ok()) << spec.status() << "\nThe model file " << SmolLm2Path()
                         << " is missing or unreadable. Fetch it with deploy/fetch_model.sh, or "
                            "point SHARDLINE_TEST_MODEL at it.";
  const std::vector<std::string> corpus = Corpus();
  ASSERT_GE(corpus.size(), 2000u);
  std::vector<std::string> pres = {spec->pre};
  if (golden.head.count("pre") > 0) pres = absl::StrSplit(golden.head.at("pre"), ' ');
  for (const std::string& pre : pres) {
    SCOPED_TRACE("pre-tokenizer " + pre);
    TokenizerSpec one = *spec;
    one.pre = pre;
    const auto tokenizer = Tokenizer::Create(std::move(one));
    ASSERT_THAT(tokenizer, testing::IsOk());
    ExpectAsRecorded(**tokenizer, golden, corpus);
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

std::vector<std::string> GoldenFiles() {
  std::vector<std::string> files;
  for (const char* name :
       {"smollm2", "pre_default", "pre_gpt-2", "pre_smollm", "pre_falcon", "pre_qwen2",
        "pre_llama-bpe", "pre_dbrx", "pre_tekken", "pre_gpt-4o", "joined_gpt-2", "joined_default",
        "joined_llama-bpe", "spm_small", "spm_no_prefix", "spm_phi3"}) {
    files.push_back(absl::StrCat(kFolder, name, ".txt"));
  }
  const std::string by_hand = EnvOr("SHARDLINE_TOKENIZER_GOLDEN", "");
  if (!by_hand.empty()) files.push_back(by_hand);
  return files;
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerGolden, ::testing::ValuesIn(GoldenFiles()),
                         [](const auto& test) {
                           const size_t slash = test.param.rfind('/') + 1;
                           std::string name = test.param.substr(slash);
                           name = name.substr(0, name.find('.'));
                           std::replace_if(
                               name.begin(), name.end(),
                               [](unsigned char c) { return !absl::ascii_isalnum(c); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace shardline
