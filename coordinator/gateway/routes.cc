#include "coordinator/gateway/routes.h"

#include <algorithm>

namespace shardline {
namespace {

struct Route {
  std::string_view path;
  Endpoint endpoint;
  std::string_view method;  // "GET" includes HEAD.
};

constexpr Route kRoutes[] = {
    {"/v1/chat/completions", Endpoint::kChat, "POST"},
    {"/v1/completions", Endpoint::kCompletions, "POST"},
    {"/v1/models", Endpoint::kModels, "GET"},
    {"/tokenize", Endpoint::kTokenize, "POST"},
    {"/detokenize", Endpoint::kDetokenize, "POST"},
    {"/apply-template", Endpoint::kApplyTemplate, "POST"},
    {"/props", Endpoint::kProps, "GET"},
};

constexpr std::string_view kModelPrefix = "/v1/models/";

// And everything below them.
constexpr std::string_view kUnsupported[] = {
    "/v1/embeddings",    "/embeddings", "/embedding",      "/v1/responses",  "/v1/messages",
    "/v1/audio",         "/v1/images",  "/v1/moderations", "/v1/rerank",     "/rerank",
    "/v1/files",         "/v1/batches", "/v1/fine_tuning", "/v1/assistants", "/v1/threads",
    "/v1/vector_stores", "/infill",     "/completion",     "/lora-adapters",
};

bool IsBelow(std::string_view path, std::string_view root) {
  return path.starts_with(root) && (path.size() == root.size() || path[root.size()] == '/');
}

std::vector<std::string> Methods(std::string_view method) {
  if (method == "GET") return {"GET", "HEAD"};
  return {std::string(method)};
}

}  // namespace

bool RouteMatch::Allows(std::string_view method) const {
  return std::find(methods.begin(), methods.end(), method) != methods.end();
}

RouteMatch MatchRoute(std::string_view path) {
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  for (const Route& route : kRoutes) {
    if (path == route.path) {
      return {.endpoint = route.endpoint, .name = route.path, .methods = Methods(route.method)};
    }
  }
  if (path.starts_with(kModelPrefix)) {
    return {.endpoint = Endpoint::kModel,
            .name = "/v1/models/{id}",
            .methods = Methods("GET"),
            .model = std::string(path.substr(kModelPrefix.size()))};
  }
  for (const std::string_view root : kUnsupported) {
    if (IsBelow(path, root)) return {.endpoint = Endpoint::kUnsupported, .name = root};
  }
  return {.name = "other"};
}

}  // namespace shardline
