#pragma once

// Expressions, with Jinja's precedence. Errors name line and column.

#include <utility>

#include "absl/status/statusor.h"
#include "model/jinja/ast.h"
#include "model/jinja/token_stream.h"

namespace shardline::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream* tokens) : tokens_(*tokens) {}  // Outlives this.

  absl::StatusOr<Expression> ParseExpression() { return ParseChoice(); }

  // One expression, or several with commas between them: then a tuple. Without `with_choice` a
  // bare `if` ends it, as behind `for x in`.
  absl::StatusOr<Expression> ParseTuple(bool with_choice);

  // `|` filters and `is` tests behind `input`; a null input for what a filter block holds.
  absl::StatusOr<Expression> ParseFilterChain();

  absl::StatusOr<Expression> ParsePostfixed();  // A primary with `.x`, `[y]` and `(z)`.

 private:
  absl::StatusOr<Expression> ParseChoice();
  absl::StatusOr<Expression> ParseOr();
  absl::StatusOr<Expression> ParseAnd();
  absl::StatusOr<Expression> ParseNot();
  absl::StatusOr<Expression> ParseCompare();
  absl::StatusOr<Expression> ParseSum();
  absl::StatusOr<Expression> ParseConcat();
  absl::StatusOr<Expression> ParseProduct();
  absl::StatusOr<Expression> ParsePower();
  absl::StatusOr<Expression> ParseUnary(bool with_filters);
  absl::StatusOr<Expression> ParsePrimary();
  absl::StatusOr<Expression> ParseInteger();
  absl::StatusOr<Expression> ParseParentheses();
  absl::StatusOr<Expression> ParseList();
  absl::StatusOr<Expression> ParseDict();
  absl::StatusOr<Expression> ParsePostfix(Expression object);
  absl::StatusOr<Expression> ParseDot(Expression object);
  absl::StatusOr<Expression> ParseSubscript(Expression object);
  absl::StatusOr<Expression> ParseFilters(Expression input);
  absl::StatusOr<Expression> ParseFilter(ExpressionPtr input);
  absl::StatusOr<Expression> ParseTest(Expression input);
  absl::StatusOr<Expression> ParseCall(Expression callee);
  absl::StatusOr<ArgumentList> ParseArguments();

  TokenStream& tokens_;
  int nesting_ = 0;
};

}  // namespace shardline::jinja
