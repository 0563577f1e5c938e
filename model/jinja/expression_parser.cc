#include "model/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <string>

#include "base/status_macros.h"

namespace shardline::jinja {
namespace {

ExpressionPtr Boxed(Expression expression) {
  return std::make_unique<Expression>(std::move(expression));
}

int DepthOf(const ExpressionPtr& expression) {
  return expression == nullptr ? 0 : expression->depth;
}
int DepthOf(const std::vector<Expression>& expressions) {
  int deepest = 0;
  for (const Expression& expression : expressions) deepest = std::max(deepest, expression.depth);
  return deepest;
}
int DepthOf(const ArgumentList& arguments) {
  int deepest = DepthOf(arguments.positional);
  for (const auto& [name, value] : arguments.named) deepest = std::max(deepest, value.depth);
  return deepest;
}

// An expression whose deepest part has `depth`.
template <typename What>
absl::StatusOr<Expression> Made(const Position& at, int depth, What what) {
  if (depth >= kTreeDepthMax) return FaultAt(at, "the expression is nested too deeply");
  return Expression{at, depth + 1, std::move(what)};
}

bool IsOneOf(const Token& token, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), token.text) != names.end();
}

class NestingGuard {
 public:
  explicit NestingGuard(int* nesting) : nesting_(*nesting) { ++nesting_; }
  ~NestingGuard() { --nesting_; }
  NestingGuard(const NestingGuard&) = delete;
  NestingGuard& operator=(const NestingGuard&) = delete;

 private:
  int& nesting_;
};

}  // namespace

absl::StatusOr<Expression> ExpressionParser::ParseTuple(bool with_choice) {
  const Position at = tokens_.position();
  std::vector<Expression> items;
  bool is_tuple = false;
  while (true) {
    if (is_tuple && (tokens_.current().kind == TokenKind::kBlockEnd ||
                     tokens_.current().kind == TokenKind::kPrintEnd || tokens_.IsOperator(")"))) {
      break;
    }
    SL_ASSIGN_OR_RETURN(Expression item, with_choice ? ParseChoice() : ParseOr());
    items.push_back(std::move(item));
    if (!tokens_.TakeOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) return std::move(items[0]);
  const int depth = DepthOf(items);
  return Made(at, depth, ListOf{std::move(items), /*is_tuple=*/true});
}

absl::StatusOr<Expression> ExpressionParser::ParseFilterChain() {
  SL_ASSIGN_OR_RETURN(Expression filter, ParseFilter(nullptr));
  return ParseFilters(std::move(filter));
}

absl::StatusOr<Expression> ExpressionParser::ParsePostfixed() {
  SL_ASSIGN_OR_RETURN(Expression primary, ParsePrimary());
  return ParsePostfix(std::move(primary));
}

absl::StatusOr<Expression> ExpressionParser::ParseChoice() {
  const NestingGuard guard(&nesting_);
  if (nesting_ > kTreeDepthMax) {
    return FaultAt(tokens_.position(), "the expression is nested too deeply");
  }
  SL_ASSIGN_OR_RETURN(Expression then, ParseOr());
  while (tokens_.IsName("if")) {
    const Position at = tokens_.Take().at;
    SL_ASSIGN_OR_RETURN(Expression condition, ParseOr());
    ExpressionPtr otherwise;
    if (tokens_.TakeName("else")) {
      SL_ASSIGN_OR_RETURN(Expression other, ParseChoice());
      otherwise = Boxed(std::move(other));
    }
    const int depth = std::max({then.depth, condition.depth, DepthOf(otherwise)});
    SL_ASSIGN_OR_RETURN(then, Made(at, depth,
                                   Choice{Boxed(std::move(condition)), Boxed(std::move(then)),
                                          std::move(otherwise)}));
  }
  return then;
}

absl::StatusOr<Expression> ExpressionParser::ParseOr() {
  SL_ASSIGN_OR_RETURN(Expression left, ParseAnd());
  while (tokens_.IsName("or")) {
    const Position at = tokens_.Take().at;
    SL_ASSIGN_OR_RETURN(Expression right, ParseAnd());
    const int depth = std::max(left.depth, right.depth);
    SL_ASSIGN_OR_RETURN(left,
                        Made(at, depth, Either{Boxed(std::move(left)), Boxed(std::move(right))}));
  }
  return left;
}

absl::StatusOr<Expression> ExpressionParser::ParseAnd() {
  SL_ASSIGN_OR_RETURN(Expression left, ParseNot());
  while (tokens_.IsName("and")) {
    const Position at = tokens_.Take().at;
    SL_ASSIGN_OR_RETURN(Expression right, ParseNot());
    const int depth = std::max(left.depth, right.depth);
    SL_ASSIGN_OR_RETURN(left,
                        Made(at, depth, Both{Boxed(std::move(left)), Boxed(std::move(right))}));
  }
  return left;
}

absl::StatusOr<Expression> ExpressionParser::ParseNot() {
  std::vector<Position> nots;
  while (tokens_.IsName("not")) nots.push_back(tokens_.Take().at);
  SL_ASSIGN_OR_RETURN(Expression operand, ParseCompare());
  for (; !nots.empty(); nots.pop_back()) {
    const int depth = operand.depth;
    SL_ASSIGN_OR_RETURN(operand, Made(nots.back(), depth, Not{Boxed(std::move(operand))}));
  }
  return operand;
}

absl::StatusOr<Expression> ExpressionParser::ParseCompare() {
  static constexpr std::pair<std::string_view, Comparison> kSymbols[] = {
      {"==", Comparison::kEqual},       {"!=", Comparison::kUnequal},
      {"<=", Comparison::kLessOrEqual}, {">=", Comparison::kGreaterOrEqual},
      {"<", Comparison::kLess},         {">", Comparison::kGreater}};
  SL_ASSIGN_OR_RETURN(Expression first, ParseSum());
  const Position at = tokens_.position();
  std::vector<Comparand> rest;
  int depth = first.depth;
  while (true) {
    std::optional<Comparison> comparison;
    for (const auto& [symbol, meant] : kSymbols) {
      if (!comparison.has_value() && tokens_.TakeOperator(symbol)) comparison = meant;
    }
    if (!comparison.has_value() && tokens_.TakeName("in")) comparison = Comparison::kIn;
    if (!comparison.has_value() && tokens_.IsName("not") &&
        tokens_.ahead().kind == TokenKind::kName && tokens_.ahead().text == "in") {
      tokens_.Take();
      tokens_.Take();
      comparison = Comparison::kNotIn;
    }
    if (!comparison.has_value()) break;
    SL_ASSIGN_OR_RETURN(Expression operand, ParseSum());
    depth = std::max(depth, operand.depth);
    rest.push_back({*comparison, std::move(operand)});
  }
  if (rest.empty()) return first;
  return Made(at, depth, Compare{Boxed(std::move(first)), std::move(rest)});
}

absl::StatusOr<Expression> ExpressionParser::ParseSum() {
  SL_ASSIGN_OR_RETURN(Expression left, ParseConcat());
  while (tokens_.IsOperator("+") || tokens_.IsOperator("-")) {
    const Token sign = tokens_.Take();
    const BinaryOperator op = sign.text == "+" ? BinaryOperator::kAdd : BinaryOperator::kSubtract;
    SL_ASSIGN_OR_RETURN(Expression right, ParseConcat());
    const int depth = std::max(left.depth, right.depth);
    SL_ASSIGN_OR_RETURN(
        left, Made(sign.at, depth, Binary{op, Boxed(std::move(left)), Boxed(std::move(right))}));
  }
  return left;
}

absl::StatusOr<Expression> ExpressionParser::ParseConcat() {
  SL_ASSIGN_OR_RETURN(Expression first, ParseProduct());
  if (!tokens_.IsOperator("~")) return first;
  const Position at = tokens_.position();
  std::vector<Expression> parts;
  parts.push_back(std::move(first));
  while (tokens_.TakeOperator("~")) {
    SL_ASSIGN_OR_RETURN(Expression part, ParseProduct());
    parts.push_back(std::move(part));
  }
  const int depth = DepthOf(parts);
  return Made(at, depth, Concat{std::move(parts)});
}

absl::StatusOr<Expression> ExpressionParser::ParseProduct() {
  static constexpr std::pair<std::string_view, BinaryOperator> kSymbols[] = {
      {"*", BinaryOperator::kMultiply},
      {"/", BinaryOperator::kDivide},
      {"//", BinaryOperator::kFloorDivide},
      {"%", BinaryOperator::kModulo}};
  SL_ASSIGN_OR_RETURN(Expression left, ParsePower());
  while (true) {
    const Position at = tokens_.position();
    std::optional<BinaryOperator> op;
    for (const auto& [symbol, meant] : kSymbols) {
      if (!op.has_value() && tokens_.TakeOperator(symbol)) op = meant;
    }
    if (!op.has_value()) return left;
    SL_ASSIGN_OR_RETURN(Expression right, ParsePower());
    const int depth = std::max(left.depth, right.depth);
    SL_ASSIGN_OR_RETURN(
        left, Made(at, depth, Binary{*op, Boxed(std::move(left)), Boxed(std::move(right))}));
  }
}

absl::StatusOr<Expression> ExpressionParser::ParsePower() {
  SL_ASSIGN_OR_RETURN(Expression left, ParseUnary(/*with_filters=*/true));
  while (tokens_.IsOperator("**")) {
    const Position at = tokens_.Take().at;
    SL_ASSIGN_OR_RETURN(Expression right, ParseUnary(/*with_filters=*/true));
    const int depth = std::max(left.depth, right.depth);
    SL_ASSIGN_OR_RETURN(left, Made(at, depth,
                                   Binary{BinaryOperator::kPower, Boxed(std::move(left)),
                                          Boxed(std::move(right))}));
  }
  return left;
}

absl::StatusOr<Expression> ExpressionParser::ParseUnary(bool with_filters) {
  std::vector<Token> signs;
  while (tokens_.IsOperator("-") || tokens_.IsOperator("+")) signs.push_back(tokens_.Take());
  SL_ASSIGN_OR_RETURN(Expression operand, ParsePostfixed());
  for (; !signs.empty(); signs.pop_back()) {
    const Position at = signs.back().at;
    const int depth = operand.depth;
    if (signs.back().text == "-") {
      SL_ASSIGN_OR_RETURN(operand, Made(at, depth, Negation{Boxed(std::move(operand))}));
    } else {
      SL_ASSIGN_OR_RETURN(operand, Made(at, depth, Plus{Boxed(std::move(operand))}));
    }
  }
  if (!with_filters) return operand;
  return ParseFilters(std::move(operand));
}

absl::StatusOr<Expression> ExpressionParser::ParsePrimary() {
  const Token& token = tokens_.current();
  const Position at = token.at;
  switch (token.kind) {
    case TokenKind::kName: {
      const std::string name = tokens_.Take().text;
      if (name == "true" || name == "True") return Made(at, 0, Constant{Value::Bool(true)});
      if (name == "false" || name == "False") return Made(at, 0, Constant{Value::Bool(false)});
      if (name == "none" || name == "None") return Made(at, 0, Constant{Value::None()});
      return Made(at, 0, Name{tokens_.IdOf(name)});
    }
    case TokenKind::kString: {
      std::string text;
      while (tokens_.current().kind == TokenKind::kString) text += tokens_.Take().text;
      return Made(at, 0, Constant{Value::OfText(nullptr, std::move(text))});
    }
    case TokenKind::kInteger:
      return ParseInteger();
    case TokenKind::kFloat:
      return Made(at, 0, Constant{Value::Float(std::strtod(tokens_.Take().text.c_str(), nullptr))});
    default:
      break;
  }
  if (tokens_.IsOperator("(")) return ParseParentheses();
  if (tokens_.IsOperator("[")) return ParseList();
  if (tokens_.IsOperator("{")) return ParseDict();
  return tokens_.Unexpected("an expression");
}

absl::StatusOr<Expression> ExpressionParser::ParseInteger() {
  const Token token = tokens_.Take();
  std::string_view digits = token.text;
  int base = 10;
  if (digits.size() > 1 && digits[0] == '0') {
    const char letter = static_cast<char>(digits[1] | 0x20);
    if (letter == 'x') base = 16;
    if (letter == 'o') base = 8;
    if (letter == 'b') base = 2;
    if (base != 10) digits.remove_prefix(2);
  }
  int64_t number = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    return FaultAt(token.at, "the number is too large");
  }
  return Made(token.at, 0, Constant{Value::Int(number)});
}

absl::StatusOr<Expression> ExpressionParser::ParseParentheses() {
  const Position at = tokens_.Take().at;
  if (tokens_.TakeOperator(")")) return Made(at, 0, ListOf{{}, /*is_tuple=*/true});
  SL_ASSIGN_OR_RETURN(Expression inner, ParseTuple(/*with_choice=*/true));
  SL_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
  return inner;
}

absl::StatusOr<Expression> ExpressionParser::ParseList() {
  const Position at = tokens_.Take().at;
  std::vector<Expression> items;
  while (!tokens_.IsOperator("]")) {
    SL_ASSIGN_OR_RETURN(Expression item, ParseExpression());
    items.push_back(std::move(item));
    if (!tokens_.TakeOperator(",")) break;
  }
  SL_RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  const int depth = DepthOf(items);
  return Made(at, depth, ListOf{std::move(items), /*is_tuple=*/false});
}

absl::StatusOr<Expression> ExpressionParser::ParseDict() {
  const Position at = tokens_.Take().at;
  std::vector<DictEntry> entries;
  int depth = 0;
  while (!tokens_.IsOperator("}")) {
    SL_ASSIGN_OR_RETURN(Expression key, ParseExpression());
    SL_RETURN_IF_ERROR(tokens_.ExpectOperator(":"));
    SL_ASSIGN_OR_RETURN(Expression value, ParseExpression());
    depth = std::max({depth, key.depth, value.depth});
    entries.push_back({std::move(key), std::move(value)});
    if (!tokens_.TakeOperator(",")) break;
  }
  SL_RETURN_IF_ERROR(tokens_.ExpectOperator("}"));
  return Made(at, depth, DictOf{std::move(entries)});
}

absl::StatusOr<Expression> ExpressionParser::ParsePostfix(Expression object) {
  while (true) {
    if (tokens_.IsOperator(".")) {
      SL_ASSIGN_OR_RETURN(object, ParseDot(std::move(object)));
    } else if (tokens_.IsOperator("[")) {
      SL_ASSIGN_OR_RETURN(object, ParseSubscript(std::move(object)));
    } else if (tokens_.IsOperator("(")) {
      SL_ASSIGN_OR_RETURN(object, ParseCall(std::move(object)));
    } else {
      return object;
    }
  }
}

absl::StatusOr<Expression> ExpressionParser::ParseDot(Expression object) {
  const Position at = tokens_.Take().at;
  const int depth = object.depth;
  if (tokens_.current().kind == TokenKind::kInteger) {
    SL_ASSIGN_OR_RETURN(Expression key, ParseInteger());
    return Made(at, depth, Item{Boxed(std::move(object)), Boxed(std::move(key))});
  }
  if (tokens_.current().kind != TokenKind::kName) return tokens_.Unexpected("a name");
  std::string name = tokens_.Take().text;
  return Made(at, depth, Attribute{Boxed(std::move(object)), std::move(name)});
}

absl::StatusOr<Expression> ExpressionParser::ParseSubscript(Expression object) {
  const Position at = tokens_.Take().at;
  ExpressionPtr bounds[3];
  int colons = 0;
  int depth = object.depth;
  while (!tokens_.IsOperator("]")) {
    if (tokens_.TakeOperator(":")) {
      if (++colons > 2) return tokens_.Unexpected("']'");
      continue;
    }
    if (bounds[colons] != nullptr) return tokens_.Unexpected("']'");
    SL_ASSIGN_OR_RETURN(Expression bound, ParseExpression());
    depth = std::max(depth, bound.depth);
    bounds[colons] = Boxed(std::move(bound));
  }
  tokens_.Take();
  if (colons > 0) {
    return Made(at, depth,
                Slice{Boxed(std::move(object)), std::move(bounds[0]), std::move(bounds[1]),
                      std::move(bounds[2])});
  }
  if (bounds[0] == nullptr) return FaultAt(at, "expected an index between [ and ]");
  return Made(at, depth, Item{Boxed(std::move(object)), std::move(bounds[0])});
}

absl::StatusOr<Expression> ExpressionParser::ParseFilters(Expression input) {
  while (true) {
    if (tokens_.TakeOperator("|")) {
      SL_ASSIGN_OR_RETURN(input, ParseFilter(Boxed(std::move(input))));
    } else if (tokens_.IsName("is")) {
      SL_ASSIGN_OR_RETURN(input, ParseTest(std::move(input)));
    } else if (tokens_.IsOperator("(")) {
      SL_ASSIGN_OR_RETURN(input, ParseCall(std::move(input)));
    } else {
      return input;
    }
  }
}

absl::StatusOr<Expression> ExpressionParser::ParseFilter(ExpressionPtr input) {
  if (tokens_.current().kind != TokenKind::kName) return tokens_.Unexpected("the name of a filter");
  const Token name = tokens_.Take();
  ArgumentList arguments;
  if (tokens_.IsOperator("(")) {
    SL_ASSIGN_OR_RETURN(arguments, ParseArguments());
  }
  const int depth = std::max(DepthOf(input), DepthOf(arguments));
  return Made(name.at, depth, Filter{std::move(input), name.text, std::move(arguments)});
}

absl::StatusOr<Expression> ExpressionParser::ParseTest(Expression input) {
  const Position at = tokens_.Take().at;
  const bool is_negated = tokens_.TakeName("not");
  if (tokens_.current().kind != TokenKind::kName) return tokens_.Unexpected("the name of a test");
  const std::string name = tokens_.Take().text;
  ArgumentList arguments;
  const Token& next = tokens_.current();
  if (tokens_.IsOperator("(")) {
    SL_ASSIGN_OR_RETURN(arguments, ParseArguments());
  } else if (tokens_.IsName("is")) {
    return FaultAt(next.at, "tests cannot be chained");
  } else if ((next.kind == TokenKind::kName && !IsOneOf(next, {"else", "or", "and"})) ||
             next.kind == TokenKind::kString || next.kind == TokenKind::kInteger ||
             next.kind == TokenKind::kFloat || tokens_.IsOperator("[") || tokens_.IsOperator("{")) {
    SL_ASSIGN_OR_RETURN(Expression argument, ParsePostfixed());
    arguments.positional.push_back(std::move(argument));
  }
  const int depth = std::max(input.depth, DepthOf(arguments));
  SL_ASSIGN_OR_RETURN(Expression test,
                      Made(at, depth, Test{Boxed(std::move(input)), name, std::move(arguments)}));
  if (!is_negated) return test;
  return Made(at, depth + 1, Not{Boxed(std::move(test))});
}

absl::StatusOr<Expression> ExpressionParser::ParseCall(Expression callee) {
  const Position at = tokens_.position();
  SL_ASSIGN_OR_RETURN(ArgumentList arguments, ParseArguments());
  const int depth = std::max(callee.depth, DepthOf(arguments));
  return Made(at, depth, Call{Boxed(std::move(callee)), std::move(arguments)});
}

absl::StatusOr<ArgumentList> ExpressionParser::ParseArguments() {
  SL_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  ArgumentList arguments;
  while (!tokens_.IsOperator(")")) {
    if (tokens_.IsOperator("*") || tokens_.IsOperator("**")) {
      return FaultAt(tokens_.position(), "arguments with * are not supported");
    }
    const bool is_named = tokens_.current().kind == TokenKind::kName &&
                          tokens_.ahead().kind == TokenKind::kOperator &&
                          tokens_.ahead().text == "=";
    if (is_named) {
      std::string name = tokens_.Take().text;
      tokens_.Take();
      SL_ASSIGN_OR_RETURN(Expression value, ParseExpression());
      arguments.named.push_back({std::move(name), std::move(value)});
    } else {
      if (!arguments.named.empty()) return tokens_.Unexpected("a named argument");
      SL_ASSIGN_OR_RETURN(Expression value, ParseExpression());
      arguments.positional.push_back(std::move(value));
    }
    if (!tokens_.TakeOperator(",")) break;
  }
  SL_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
  return arguments;
}

}  // namespace shardline::jinja
