#include "model/tokenizer/pre_tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdint>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace shardline {
namespace {

// What \s stands for below, in brackets: White_Space of Unicode, which is PCRE2's \s less U+180E.
constexpr absl::string_view kSpaces =
    R"(\x09-\x0D\x20\x85\xA0\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

// <suffix>: English contractions in any case. <newlines|spaces>: what is white and still there.
constexpr absl::string_view kSuffix = R"('(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL]))";
constexpr absl::string_view kNewlinesOrSpaces = R"([\s]*[\r\n]+|[\s]+(?![^\s])|[\s]+)";

constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|[\s]+(?![^\s]))";
constexpr const char* kLlama3 =
    R"(<suffix>|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|<newlines|spaces>)";
constexpr const char* kQwen2 =
    R"(<suffix>|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|<newlines|spaces>)";
// A cased word is letters but a-z, then letters but A-Z; one of the two may be missing.
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[^\P{L}a-z]*[^\P{L}A-Z]+|[^\r\n\p{L}\p{N}]?[^\P{L}a-z]+[^\P{L}A-Z]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|<newlines|spaces>)";
constexpr const char* kGpt4o = R"([^\r\n\p{L}\p{N}]?[^\P{L}a-z]*[^\P{L}A-Z]+(?:<suffix>)?|)"
                               R"([^\r\n\p{L}\p{N}]?[^\P{L}a-z]+[^\P{L}A-Z]*(?:<suffix>)?|)"
                               R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|<newlines|spaces>)";
constexpr const char* kDigit = R"(\p{N})";
constexpr const char* kNumber = R"(\p{N}+)";
constexpr const char* kThreeDigits = R"([0-9][0-9][0-9])";
constexpr const char* kPunctuation = R"([\p{P}$+<=>^~|]+)";
constexpr const char* kPunctuationAndBacktick = R"([\p{P}$+<=>^~|`]+)";

struct Kind {
  std::array<const char*, 4> patterns;  // nullptr past the last.
  bool ignores_merges = false;
  bool adds_bos = false;
};

constexpr Kind kDefaultKind = {.patterns = {kPunctuation, kGpt2, kNumber, kThreeDigits}};
constexpr Kind kGpt2Kind = {.patterns = {kGpt2}};
constexpr Kind kDigitsKind = {.patterns = {kDigit, kGpt2}};
constexpr Kind kFalconKind = {.patterns = {kPunctuationAndBacktick, kGpt2, kThreeDigits}};
constexpr Kind kQwen2Kind = {.patterns = {kQwen2}};
constexpr Kind kLlama3Kind = {.patterns = {kLlama3}, .ignores_merges = true, .adds_bos = true};
constexpr Kind kMergingLlama3Kind = {.patterns = {kLlama3}};
constexpr Kind kTekkenKind = {.patterns = {kTekken}, .ignores_merges = true, .adds_bos = true};
constexpr Kind kGpt4oKind = {.patterns = {kGpt4o}};

struct NamedKind {
  std::string_view name;
  const Kind* kind;
};

constexpr NamedKind kKinds[] = {
    {"default", &kDefaultKind},    {"gpt-2", &kGpt2Kind},
    {"phi-2", &kGpt2Kind},         {"smollm", &kDigitsKind},
    {"starcoder", &kDigitsKind},   {"refact", &kDigitsKind},
    {"command-r", &kDigitsKind},   {"codeshell", &kDigitsKind},
    {"exaone", &kDigitsKind},      {"minerva-7b", &kDigitsKind},
    {"falcon", &kFalconKind},      {"qwen2", &kQwen2Kind},
    {"stablelm2", &kQwen2Kind},    {"deepseek-r1-qwen", &kQwen2Kind},
    {"llama-bpe", &kLlama3Kind},   {"llama3", &kLlama3Kind},
    {"llama-v3", &kLlama3Kind},    {"falcon3", &kLlama3Kind},
    {"dbrx", &kMergingLlama3Kind}, {"smaug-bpe", &kMergingLlama3Kind},
    {"tekken", &kTekkenKind},      {"gpt-4o", &kGpt4oKind},
};

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

std::string ErrorText(int error) {
  std::array<PCRE2_UCHAR, 256> buffer = {};
  pcre2_get_error_message(error, buffer.data(), buffer.size());
  return std::string(reinterpret_cast<const char*>(buffer.data()));
}

}  // namespace

// One compiled pattern. Immutable, any thread.
class PreTokenizer::Pattern {
 public:
  explicit Pattern(const char* shorthand) {
    std::string text = shorthand;
    absl::StrReplaceAll({{"<suffix>", kSuffix}, {"<newlines|spaces>", kNewlinesOrSpaces}}, &text);
    absl::StrReplaceAll({{"\\s", kSpaces}}, &text);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                              PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr));
    SL_CHECK(code_ != nullptr, ErrorText(error), " at ", offset, " in ", text);
    // May be refused where pages must not be made executable; then the interpreter runs.
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);
    // The limits guard against foreign patterns. These are ours and go back at most once over a
    // run of one class, so a limit could only turn a long input into a failure.
    context_.reset(pcre2_match_context_create(nullptr));
    SL_CHECK(context_ != nullptr);
    pcre2_set_match_limit(context_.get(), std::numeric_limits<uint32_t>::max());
    pcre2_set_depth_limit(context_.get(), std::numeric_limits<uint32_t>::max());
    pcre2_set_heap_limit(context_.get(), std::numeric_limits<uint32_t>::max());
  }

  // Appends the ends of the pieces of text[begin, end) to `ends`.
  absl::Status Split(std::string_view text, size_t begin, size_t end,
                     std::vector<size_t>* ends) const {
    const std::unique_ptr<pcre2_match_data, FreeMatchData> match(
        pcre2_match_data_create(1, nullptr));
    SL_CHECK(match != nullptr);
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    // No pattern looks behind, so each search may begin its subject where the last match ended.
    for (size_t position = begin; position < end;) {
      int found = pcre2_match(code_.get(), subject + position, end - position, 0,
                              PCRE2_NO_UTF_CHECK, match.get(), context_.get());
      if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
        found = pcre2_match(code_.get(), subject + position, end - position, 0,
                            PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match.get(), context_.get());
      }
      if (found == PCRE2_ERROR_NOMATCH) break;
      if (found < 0) {
        return absl::InternalError(absl::StrCat("cut text into words: ", ErrorText(found)));
      }
      const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match.get());
      SL_CHECK(bounds[1] > bounds[0]);  // No pattern matches nothing.
      if (bounds[0] > 0) ends->push_back(position + bounds[0]);
      ends->push_back(position + bounds[1]);
      position += bounds[1];
    }
    if (begin < end && (ends->empty() || ends->back() != end)) ends->push_back(end);
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<pcre2_code, FreeCode> code_;
  std::unique_ptr<pcre2_match_context, FreeMatchContext> context_;
};

PreTokenizer::PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

absl::StatusOr<PreTokenizer> PreTokenizer::Create(std::string_view name) {
  if (name.empty()) name = "default";
  std::string known;
  for (const NamedKind& named : kKinds) {
    if (named.name == name) {
      PreTokenizer result;
      result.ignores_merges_ = named.kind->ignores_merges;
      result.adds_bos_ = named.kind->adds_bos;
      for (const char* pattern : named.kind->patterns) {
        if (pattern != nullptr) result.patterns_.push_back(std::make_unique<Pattern>(pattern));
      }
      return result;
    }
    known += std::string(known.empty() ? "" : ", ") + std::string(named.name);
  }
  return absl::UnimplementedError("tokenizer.ggml.pre is \"" + std::string(name) +
                                  "\"; known are " + known);
}

absl::Status PreTokenizer::Split(std::string_view text, std::vector<size_t>* ends) const {
  ends->clear();
  if (text.empty()) return absl::OkStatus();
  ends->push_back(text.size());
  std::vector<size_t> coarser;
  for (const auto& pattern : patterns_) {
    coarser.swap(*ends);
    ends->clear();
    size_t begin = 0;
    for (const size_t end : coarser) {
      SL_RETURN_IF_ERROR(pattern->Split(text, begin, end, ends));
      begin = end;
    }
  }
  return absl::OkStatus();
}

}  // namespace shardline
