#pragma once

// The tokens of a template, one after the other, and the numbers of its names.

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "model/jinja/fault.h"
#include "model/jinja/lexer.h"
#include "model/jinja/scope.h"

namespace shardline::jinja {

class TokenStream {
 public:
  // REQUIRES: the last token is kEnd.
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  const Position& position() const { return current().at; }

  // Stays on the last token.
  Token Take() {
    Token token = tokens_[at_];
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }

  bool IsOperator(std::string_view symbol) const {
    return current().kind == TokenKind::kOperator && current().text == symbol;
  }
  bool IsName(std::string_view name) const {
    return current().kind == TokenKind::kName && current().text == name;
  }
  bool TakeOperator(std::string_view symbol) { return TakeIf(IsOperator(symbol)); }
  bool TakeName(std::string_view name) { return TakeIf(IsName(name)); }

  // Whether `name` stands between a place passed and here.
  using Mark = size_t;
  Mark Here() const { return at_; }
  bool NamedSince(Mark begin, std::string_view name) const {
    return std::any_of(tokens_.begin() + static_cast<std::ptrdiff_t>(begin),
                       tokens_.begin() + static_cast<std::ptrdiff_t>(at_), [name](const Token& t) {
                         return t.kind == TokenKind::kName && t.text == name;
                       });
  }

  absl::Status ExpectOperator(std::string_view symbol) {
    return TakeOperator(symbol) ? absl::OkStatus() : Unexpected(Join({"'", symbol, "'"}));
  }
  absl::Status ExpectName(std::string_view name) {
    return TakeName(name) ? absl::OkStatus() : Unexpected(Join({"'", name, "'"}));
  }
  absl::Status Expect(TokenKind kind, std::string_view wanted) {
    return TakeIf(current().kind == kind) ? absl::OkStatus() : Unexpected(wanted);
  }

  absl::Status Unexpected(std::string_view wanted) const {
    return FaultAt(position(), Join({"expected ", wanted, ", found ", Shown(current())}));
  }

  NameId IdOf(const std::string& name) {
    const auto [found, is_new] = ids_.emplace(name, static_cast<NameId>(names_.size()));
    if (is_new) names_.push_back(name);
    return found->second;
  }
  std::vector<std::string> TakeNames() { return std::move(names_); }

 private:
  static std::string Shown(const Token& token) {
    switch (token.kind) {
      case TokenKind::kText:
      case TokenKind::kEnd:
        return "the end";
      case TokenKind::kPrintBegin:
        return "'{{'";
      case TokenKind::kPrintEnd:
        return "'}}'";
      case TokenKind::kBlockBegin:
        return "'{%'";
      case TokenKind::kBlockEnd:
        return "'%}'";
      case TokenKind::kString:
        return "a string";
      default:
        return Join({"'", token.text, "'"});
    }
  }

  bool TakeIf(bool condition) {
    if (condition && at_ + 1 < tokens_.size()) ++at_;
    return condition;
  }

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  std::vector<std::string> names_;
  absl::flat_hash_map<std::string, NameId> ids_;
};

}  // namespace shardline::jinja
