#pragma once

// A template as a tree. Trees are shallow: the parser refuses expressions deeper than kTreeDepthMax
// and statements nested deeper than that, so walking one needs no limit.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "model/jinja/lexer.h"
#include "model/jinja/operators.h"
#include "model/jinja/scope.h"
#include "model/jinja/value.h"

namespace shardline::jinja {

inline constexpr int kTreeDepthMax = 100;

struct Expression;
struct DictEntry;      // key: value
struct NamedArgument;  // name=value
struct Comparand;      // op value
using ExpressionPtr = std::unique_ptr<Expression>;

struct Constant {
  Value value;
};
struct Name {
  NameId id;
};
struct ListOf {
  std::vector<Expression> items;
  bool is_tuple;
};
struct DictOf {
  std::vector<DictEntry> entries;
};
struct Attribute {  // object.name
  ExpressionPtr object;
  std::string name;
};
struct Item {  // object[key]
  ExpressionPtr object;
  ExpressionPtr key;
};
struct Slice {  // object[start:stop:step]; null for what is left out.
  ExpressionPtr object;
  ExpressionPtr start;
  ExpressionPtr stop;
  ExpressionPtr step;
};
struct ArgumentList {
  std::vector<Expression> positional;
  std::vector<NamedArgument> named;
};
struct Call {
  ExpressionPtr callee;
  ArgumentList arguments;
};
struct Filter {  // input | name(arguments); a null input is the body of a filter block.
  ExpressionPtr input;
  std::string name;
  ArgumentList arguments;
};
struct Test {  // input is [not] name(arguments)
  ExpressionPtr input;
  std::string name;
  ArgumentList arguments;
};
struct Negation {  // -operand
  ExpressionPtr operand;
};
struct Plus {  // +operand
  ExpressionPtr operand;
};
struct Not {
  ExpressionPtr operand;
};
struct Both {  // left and right: the first that is false, else `right`.
  ExpressionPtr left;
  ExpressionPtr right;
};
struct Either {  // left or right: the first that is true, else `right`.
  ExpressionPtr left;
  ExpressionPtr right;
};
struct Binary {
  BinaryOperator op;
  ExpressionPtr left;
  ExpressionPtr right;
};
struct Concat {  // a ~ b ~ c
  std::vector<Expression> parts;
};
enum class Comparison {
  kEqual,
  kUnequal,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kIn,
  kNotIn
};
struct Compare {  // first op1 a op2 b ...: each operand is evaluated once, up to the first false.
  ExpressionPtr first;
  std::vector<Comparand> rest;
};
struct Choice {  // then if condition else otherwise; a null `otherwise` is undefined.
  ExpressionPtr condition;
  ExpressionPtr then;
  ExpressionPtr otherwise;
};

struct Expression {
  Position at;
  int depth = 1;
  std::variant<Constant, Name, ListOf, DictOf, Attribute, Item, Slice, Call, Filter, Test, Negation,
               Plus, Not, Both, Either, Binary, Concat, Compare, Choice>
      what;
};

struct DictEntry {
  Expression key;
  Expression value;
};
struct NamedArgument {
  std::string name;
  Expression value;
};
struct Comparand {
  Comparison comparison;
  Expression value;
};

struct Statement;
using Body = std::vector<Statement>;

// What `for` and `set` write to: names, unpacked from a sequence if there are several; or an
// attribute of a namespace.
struct Target {
  Position at;
  std::vector<Target> parts;  // Of a tuple; empty for one name.
  bool is_tuple = false;
  NameId name = 0;
  std::string attribute;  // `name.attribute`; empty: the name itself.
};

struct Write {
  std::string text;
};
struct Print {
  Expression value;
};
struct If {
  struct Branch {
    std::optional<Expression> condition;  // Nothing: `else`.
    Body body;
  };
  std::vector<Branch> branches;
};
struct For {
  Target target;
  Expression items;
  std::optional<Expression> filter;
  Body body;
  Body otherwise;
};
struct Set {
  Target target;
  Expression value;
};
struct SetBlock {  // The text of the body, through the filter if there is one.
  Target target;
  std::optional<Expression> filter;
  Body body;
};
struct Parameter {
  NameId name;
  std::string spelled;
  std::optional<Expression> fallback;
};
struct Macro {
  std::string spelled;  // Empty: the body of a call block.
  std::vector<Parameter> parameters;
  Body body;
  bool takes_rest = false;   // The body names `varargs`.
  bool takes_named = false;  // The body names `kwargs`.
  bool takes_caller = false;
};
struct MacroDefinition {
  NameId name;
  Macro macro;
};
struct CallBlock {
  Macro caller;
  Expression call;  // A Call.
};
struct FilterBlock {
  Expression filter;
  Body body;
};
struct With {
  std::vector<std::pair<Target, Expression>> values;
  Body body;
};
struct Scoped {  // A block of its own scope and no other meaning: `generation`.
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  Position at;
  std::variant<Write, Print, If, For, Set, SetBlock, MacroDefinition, CallBlock, FilterBlock, With,
               Scoped, Break, Continue>
      what;
};

struct Tree {
  std::vector<std::string> names;  // By NameId.
  Body body;
};

}  // namespace shardline::jinja
