#include "model/jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>

#include "base/status_macros.h"
#include "model/jinja/expression_parser.h"
#include "model/jinja/token_stream.h"

namespace shardline::jinja {
namespace {

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)), expressions_(&tokens_) {}

  absl::StatusOr<Tree> Run() {
    Tree tree;
    SL_ASSIGN_OR_RETURN(tree.body, ParseBody({}));
    tree.names = tokens_.TakeNames();
    return tree;
  }

 private:
  // Statements up to `{% name`, for one of `ends`; the name stays. Without ends: up to the end.
  absl::StatusOr<Body> ParseBody(std::initializer_list<std::string_view> ends);
  // The same up to `{% end %}`, which is taken.
  absl::StatusOr<Body> ParseBlockBody(std::string_view end);

  absl::StatusOr<Statement> ParseStatement();
  absl::StatusOr<Statement> ParseIf(const Position& at);
  absl::StatusOr<Statement> ParseFor(const Position& at);
  absl::StatusOr<Statement> ParseSet(const Position& at);
  absl::StatusOr<Statement> ParseMacro(const Position& at);
  absl::StatusOr<Statement> ParseCallBlock(const Position& at);
  absl::StatusOr<Statement> ParseFilterBlock(const Position& at);
  absl::StatusOr<Statement> ParseWith(const Position& at);
  absl::StatusOr<Statement> ParseLoopExit(const Position& at, bool is_break);

  absl::StatusOr<std::vector<Parameter>> ParseParameters();
  absl::StatusOr<Body> ParseMacroBody(std::string_view end, Macro* macro);
  absl::StatusOr<Target> ParseTarget(bool may_be_attribute);
  absl::StatusOr<Target> ParseTargets(bool may_be_attribute);
  absl::StatusOr<std::string> TakeTargetName();
  absl::Status EndBlock() { return tokens_.Expect(TokenKind::kBlockEnd, "'%}'"); }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int nesting_ = 0;  // Of statements.
  int loops_ = 0;    // Around the place, within its macro.
};

absl::StatusOr<Body> Parser::ParseBody(std::initializer_list<std::string_view> ends) {
  if (++nesting_ > kTreeDepthMax) {
    return FaultAt(tokens_.position(), "blocks are nested too deeply");
  }
  Body body;
  while (true) {
    const Token& token = tokens_.current();
    if (token.kind == TokenKind::kEnd) {
      if (ends.size() == 0) break;
      return tokens_.Unexpected(Join({"'{% ", *(ends.end() - 1), " %}'"}));
    }
    if (token.kind == TokenKind::kText) {
      Token text = tokens_.Take();
      body.push_back({text.at, Write{std::move(text.text)}});
      continue;
    }
    if (token.kind == TokenKind::kPrintBegin) {
      const Position at = tokens_.Take().at;
      SL_ASSIGN_OR_RETURN(Expression value, expressions_.ParseTuple(/*with_choice=*/true));
      SL_RETURN_IF_ERROR(tokens_.Expect(TokenKind::kPrintEnd, "'}}'"));
      body.push_back({at, Print{std::move(value)}});
      continue;
    }
    tokens_.Take();
    if (std::any_of(ends.begin(), ends.end(),
                    [this](std::string_view end) { return tokens_.IsName(end); })) {
      break;
    }
    SL_ASSIGN_OR_RETURN(Statement statement, ParseStatement());
    body.push_back(std::move(statement));
  }
  --nesting_;
  return body;
}

absl::StatusOr<Body> Parser::ParseBlockBody(std::string_view end) {
  SL_RETURN_IF_ERROR(EndBlock());
  SL_ASSIGN_OR_RETURN(Body body, ParseBody({end}));
  tokens_.Take();
  // `endmacro` and the like may repeat the name.
  if (end == "endmacro" && tokens_.current().kind == TokenKind::kName) tokens_.Take();
  SL_RETURN_IF_ERROR(EndBlock());
  return body;
}

absl::StatusOr<Statement> Parser::ParseStatement() {
  if (tokens_.current().kind != TokenKind::kName) return tokens_.Unexpected("the name of a block");
  const Token name = tokens_.Take();
  if (name.text == "if") return ParseIf(name.at);
  if (name.text == "for") return ParseFor(name.at);
  if (name.text == "set") return ParseSet(name.at);
  if (name.text == "macro") return ParseMacro(name.at);
  if (name.text == "call") return ParseCallBlock(name.at);
  if (name.text == "filter") return ParseFilterBlock(name.at);
  if (name.text == "with") return ParseWith(name.at);
  if (name.text == "break") return ParseLoopExit(name.at, /*is_break=*/true);
  if (name.text == "continue") return ParseLoopExit(name.at, /*is_break=*/false);
  if (name.text == "generation") {
    SL_ASSIGN_OR_RETURN(Body body, ParseBlockBody("endgeneration"));
    return Statement{name.at, Scoped{std::move(body)}};
  }
  return FaultAt(name.at, Join({"'{% ", name.text, " %}' is unknown or out of place"}));
}

absl::StatusOr<Statement> Parser::ParseIf(const Position& at) {
  If statement;
  bool is_last = false;
  while (true) {
    If::Branch branch;
    if (!is_last) {
      SL_ASSIGN_OR_RETURN(branch.condition, expressions_.ParseTuple(/*with_choice=*/false));
    }
    SL_RETURN_IF_ERROR(EndBlock());
    if (is_last) {
      SL_ASSIGN_OR_RETURN(branch.body, ParseBody({"endif"}));
    } else {
      SL_ASSIGN_OR_RETURN(branch.body, ParseBody({"elif", "else", "endif"}));
    }
    statement.branches.push_back(std::move(branch));
    const std::string end = tokens_.Take().text;
    if (end == "endif") break;
    is_last = end == "else";
  }
  SL_RETURN_IF_ERROR(EndBlock());
  return Statement{at, std::move(statement)};
}

absl::StatusOr<Statement> Parser::ParseFor(const Position& at) {
  SL_ASSIGN_OR_RETURN(Target target, ParseTargets(/*may_be_attribute=*/false));
  SL_RETURN_IF_ERROR(tokens_.ExpectName("in"));
  SL_ASSIGN_OR_RETURN(Expression items, expressions_.ParseTuple(/*with_choice=*/false));
  For statement = {.target = std::move(target), .items = std::move(items)};
  if (tokens_.TakeName("if")) {
    SL_ASSIGN_OR_RETURN(statement.filter, expressions_.ParseExpression());
  }
  if (tokens_.IsName("recursive")) {
    return FaultAt(tokens_.position(), "recursive loops are not supported");
  }
  SL_RETURN_IF_ERROR(EndBlock());
  ++loops_;
  SL_ASSIGN_OR_RETURN(statement.body, ParseBody({"else", "endfor"}));
  --loops_;
  if (tokens_.Take().text == "else") {
    SL_RETURN_IF_ERROR(EndBlock());
    SL_ASSIGN_OR_RETURN(statement.otherwise, ParseBody({"endfor"}));
    tokens_.Take();
  }
  SL_RETURN_IF_ERROR(EndBlock());
  return Statement{at, std::move(statement)};
}

absl::StatusOr<Statement> Parser::ParseSet(const Position& at) {
  SL_ASSIGN_OR_RETURN(Target target, ParseTargets(/*may_be_attribute=*/true));
  if (tokens_.TakeOperator("=")) {
    SL_ASSIGN_OR_RETURN(Expression value, expressions_.ParseTuple(/*with_choice=*/true));
    SL_RETURN_IF_ERROR(EndBlock());
    return Statement{at, Set{std::move(target), std::move(value)}};
  }
  SetBlock block = {.target = std::move(target)};
  if (tokens_.TakeOperator("|")) {
    SL_ASSIGN_OR_RETURN(block.filter, expressions_.ParseFilterChain());
  }
  SL_ASSIGN_OR_RETURN(block.body, ParseBlockBody("endset"));
  return Statement{at, std::move(block)};
}

absl::StatusOr<Statement> Parser::ParseMacro(const Position& at) {
  MacroDefinition definition;
  SL_ASSIGN_OR_RETURN(definition.macro.spelled, TakeTargetName());
  definition.name = tokens_.IdOf(definition.macro.spelled);
  SL_ASSIGN_OR_RETURN(definition.macro.parameters, ParseParameters());
  SL_ASSIGN_OR_RETURN(definition.macro.body, ParseMacroBody("endmacro", &definition.macro));
  return Statement{at, std::move(definition)};
}

absl::StatusOr<Statement> Parser::ParseCallBlock(const Position& at) {
  Macro caller;
  if (tokens_.IsOperator("(")) {
    SL_ASSIGN_OR_RETURN(caller.parameters, ParseParameters());
  }
  SL_ASSIGN_OR_RETURN(Expression call, expressions_.ParseExpression());
  if (!std::holds_alternative<Call>(call.what)) return FaultAt(call.at, "expected a call");
  SL_ASSIGN_OR_RETURN(caller.body, ParseMacroBody("endcall", &caller));
  return Statement{at, CallBlock{std::move(caller), std::move(call)}};
}

absl::StatusOr<Statement> Parser::ParseFilterBlock(const Position& at) {
  SL_ASSIGN_OR_RETURN(Expression filter, expressions_.ParseFilterChain());
  SL_ASSIGN_OR_RETURN(Body body, ParseBlockBody("endfilter"));
  return Statement{at, FilterBlock{std::move(filter), std::move(body)}};
}

absl::StatusOr<Statement> Parser::ParseWith(const Position& at) {
  With with;
  while (tokens_.current().kind != TokenKind::kBlockEnd) {
    if (!with.values.empty()) SL_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    SL_ASSIGN_OR_RETURN(Target target, ParseTarget(/*may_be_attribute=*/false));
    SL_RETURN_IF_ERROR(tokens_.ExpectOperator("="));
    SL_ASSIGN_OR_RETURN(Expression value, expressions_.ParseExpression());
    with.values.emplace_back(std::move(target), std::move(value));
  }
  SL_ASSIGN_OR_RETURN(with.body, ParseBlockBody("endwith"));
  return Statement{at, std::move(with)};
}

absl::StatusOr<Statement> Parser::ParseLoopExit(const Position& at, bool is_break) {
  if (loops_ == 0) {
    return FaultAt(at, Join({"'", is_break ? "break" : "continue", "' stands outside of a loop"}));
  }
  SL_RETURN_IF_ERROR(EndBlock());
  if (is_break) return Statement{at, Break{}};
  return Statement{at, Continue{}};
}

absl::StatusOr<std::vector<Parameter>> Parser::ParseParameters() {
  SL_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  std::vector<Parameter> parameters;
  while (!tokens_.IsOperator(")")) {
    if (!parameters.empty()) SL_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    Parameter parameter;
    const Position at = tokens_.position();
    SL_ASSIGN_OR_RETURN(parameter.spelled, TakeTargetName());
    parameter.name = tokens_.IdOf(parameter.spelled);
    if (tokens_.TakeOperator("=")) {
      SL_ASSIGN_OR_RETURN(parameter.fallback, expressions_.ParseExpression());
    } else if (!parameters.empty() && parameters.back().fallback.has_value()) {
      return FaultAt(at, "a parameter without default follows one with a default");
    }
    parameters.push_back(std::move(parameter));
  }
  tokens_.Take();
  return parameters;
}

absl::StatusOr<Body> Parser::ParseMacroBody(std::string_view end, Macro* macro) {
  const int loops_around = std::exchange(loops_, 0);
  const TokenStream::Mark begin = tokens_.Here();
  SL_ASSIGN_OR_RETURN(Body body, ParseBlockBody(end));
  loops_ = loops_around;
  macro->takes_rest = tokens_.NamedSince(begin, "varargs");
  macro->takes_named = tokens_.NamedSince(begin, "kwargs");
  macro->takes_caller = tokens_.NamedSince(begin, "caller");
  return body;
}

absl::StatusOr<std::string> Parser::TakeTargetName() {
  if (tokens_.current().kind != TokenKind::kName) return tokens_.Unexpected("a name");
  for (const std::string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
    if (tokens_.IsName(reserved)) return tokens_.Unexpected("a name");
  }
  return tokens_.Take().text;
}

absl::StatusOr<Target> Parser::ParseTarget(bool may_be_attribute) {
  Target target = {.at = tokens_.position()};
  if (tokens_.TakeOperator("(")) {
    if (++nesting_ > kTreeDepthMax) return FaultAt(target.at, "names are nested too deeply");
    SL_ASSIGN_OR_RETURN(target, ParseTargets(/*may_be_attribute=*/false));
    SL_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
    --nesting_;
    return target;
  }
  SL_ASSIGN_OR_RETURN(const std::string name, TakeTargetName());
  target.name = tokens_.IdOf(name);
  if (may_be_attribute && tokens_.TakeOperator(".")) {
    SL_ASSIGN_OR_RETURN(target.attribute, TakeTargetName());
  }
  return target;
}

absl::StatusOr<Target> Parser::ParseTargets(bool may_be_attribute) {
  Target tuple = {.at = tokens_.position(), .is_tuple = true};
  SL_ASSIGN_OR_RETURN(Target first, ParseTarget(may_be_attribute));
  if (!tokens_.IsOperator(",")) return first;
  tuple.parts.push_back(std::move(first));
  while (tokens_.TakeOperator(",")) {
    if (tokens_.current().kind != TokenKind::kName && !tokens_.IsOperator("(")) break;
    if (tokens_.IsName("in")) break;
    SL_ASSIGN_OR_RETURN(Target part, ParseTarget(may_be_attribute));
    tuple.parts.push_back(std::move(part));
  }
  return tuple;
}

}  // namespace

absl::StatusOr<Tree> Parse(std::string_view source) {
  SL_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace shardline::jinja
