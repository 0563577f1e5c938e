#include "model/grammar/grammar_builder.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "model/tokenizer/utf8.h"

namespace shardline {
namespace {

constexpr size_t kHintBytesMax = 40;
constexpr uint32_t kReplacement = 0xFFFD;

std::string Cleaned(std::string_view hint) {
  std::string out;
  for (const char c : hint.substr(0, kHintBytesMax)) {
    const bool is_plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-';
    out.push_back(is_plain ? c : '-');
  }
  return out.empty() ? "rule" : out;
}

std::string Escaped(uint32_t code_point) {
  if (code_point <= 0xFF) return absl::StrFormat("\\x%02X", code_point);
  return code_point <= 0xFFFF ? absl::StrFormat("\\u%04X", code_point)
                              : absl::StrFormat("\\U%08X", code_point);
}

std::string InClass(uint32_t code_point) {
  const bool is_plain =
      code_point < 0x80 && absl::ascii_isalnum(static_cast<unsigned char>(code_point));
  return is_plain ? std::string(1, static_cast<char>(code_point)) : Escaped(code_point);
}

}  // namespace

std::string GbnfLiteral(std::string_view text) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    const int32_t read = NextCodePoint(text, &at);
    const uint32_t code_point =
        read < 0 || (read >= 0xD800 && read <= 0xDFFF) ? kReplacement : static_cast<uint32_t>(read);
    if (code_point == '"' || code_point == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(code_point));
    } else if (code_point == '\n') {
      out += "\\n";
    } else if (code_point < 0x20 || code_point == 0x7F) {
      out += Escaped(code_point);
    } else {
      AppendUtf8(code_point, &out);
    }
  }
  out.push_back('"');
  return out;
}

std::string GbnfClass(const CodePoints& set) {
  std::string out = "[";
  for (const CodePointRange& range : set) {
    out += InClass(range.low);
    if (range.high == range.low) continue;
    if (range.high > range.low + 1) out.push_back('-');
    out += InClass(range.high);
  }
  out.push_back(']');
  return out;
}

std::string GrammarBuilder::Reserve(std::string_view hint) {
  const std::string clean = Cleaned(hint);
  std::string name = clean;
  while (name == "root" || indexes_.contains(name)) {
    name = absl::StrCat(clean, "-", ++repeats_[clean]);
  }
  indexes_[name] = rules_.size();
  rules_.push_back({.name = name});
  return name;
}

void GrammarBuilder::Define(std::string_view name, std::string body) {
  Rule& rule = rules_[indexes_.at(std::string(name))];
  SL_CHECK(rule.body.empty());
  bytes_ += name.size() + body.size() + 6;
  rule.body = std::move(body);
}

std::string GrammarBuilder::AddRule(std::string_view hint, std::string body) {
  std::string name = Reserve(hint);
  Define(name, std::move(body));
  return name;
}

std::string GrammarBuilder::AddShared(std::string_view key, std::string_view body) {
  if (std::optional<std::string> known = FindShared(key)) return *std::move(known);
  std::string name = ReserveShared(key);
  Define(name, std::string(body));
  return name;
}

std::optional<std::string> GrammarBuilder::FindShared(std::string_view key) const {
  const auto it = shared_.find(std::string(key));
  if (it == shared_.end()) return std::nullopt;
  return it->second;
}

std::string GrammarBuilder::ReserveShared(std::string_view key) {
  std::string name = Reserve(key);
  SL_CHECK(shared_.try_emplace(std::string(key), name).second);
  return name;
}

std::string GrammarBuilder::Build(std::string_view root) const {
  std::string out = absl::StrCat("root ::= ", std::string(root), "\n");
  for (const Rule& rule : rules_) absl::StrAppend(&out, rule.name, " ::= ", rule.body, "\n");
  return out;
}

}  // namespace shardline
