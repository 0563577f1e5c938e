#pragma once

// Which path is which endpoint of the HTTP API.

#include <string>
#include <string_view>
#include <vector>

namespace shardline {

enum class Endpoint {
  kUnknown,
  kChat,         // POST /v1/chat/completions
  kCompletions,  // POST /v1/completions
  kModels,       // GET /v1/models
  kModel,        // GET /v1/models/{id}; ids may hold slashes
  kTokenize,
  kDetokenize,
  kApplyTemplate,
  kProps,
  kUnsupported,  // Known to other servers and to clients, and not done here: embeddings, ...
};

struct RouteMatch {
  Endpoint endpoint = Endpoint::kUnknown;
  std::string_view name;             // The template of the path, for logs and metrics.
  std::vector<std::string> methods;  // Allowed ones, without OPTIONS.
  std::string model;                 // Of kModel.

  bool Allows(std::string_view method) const;
};

// `path` is percent-decoded; one slash at its end changes nothing. Admin, health and page are not
// known here.
RouteMatch MatchRoute(std::string_view path);

}  // namespace shardline
