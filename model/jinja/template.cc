#include "model/jinja/template.h"

#include <algorithm>
#include <optional>

#include "base/status_macros.h"
#include "model/jinja/ast.h"
#include "model/jinja/globals.h"
#include "model/jinja/interpreter.h"
#include "model/jinja/json_text.h"
#include "model/jinja/parser.h"
#include "model/jinja/runtime.h"

namespace shardline::jinja {

absl::StatusOr<std::unique_ptr<const Template>> Template::Parse(std::string_view source) {
  SL_ASSIGN_OR_RETURN(Tree tree, jinja::Parse(source));
  return std::unique_ptr<const Template>(
      new Template(std::make_unique<const Tree>(std::move(tree))));
}

Template::Template(std::unique_ptr<const Tree> tree) : tree_(std::move(tree)) {}
Template::~Template() = default;

bool Template::Names(std::string_view variable) const {
  return std::find(tree_->names.begin(), tree_->names.end(), variable) != tree_->names.end();
}

absl::StatusOr<std::string> Template::Render(const Variables& variables, absl::Time now,
                                             const Limits& limits) const {
  Runtime runtime(limits, now);
  auto globals = std::make_shared<Scope>(nullptr);
  for (size_t id = 0; id < tree_->names.size(); ++id) {
    const std::string& name = tree_->names[id];
    const auto variable = std::find_if(variables.begin(), variables.end(),
                                       [&](const auto& entry) { return entry.first == name; });
    std::optional<Value> value;
    if (variable != variables.end()) {
      SL_ASSIGN_OR_RETURN(value, FromJson(runtime.meter, *variable->second));
    } else {
      value = FindGlobal(name);
    }
    if (value.has_value()) globals->Set(static_cast<NameId>(id), *std::move(value));
  }
  std::string out;
  Interpreter interpreter(tree_.get(), &runtime);
  SL_RETURN_IF_ERROR(interpreter.Run(std::make_shared<Scope>(std::move(globals)), &out));
  return out;
}

}  // namespace shardline::jinja
