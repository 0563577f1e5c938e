#include "coordinator/gateway/page.h"

#include <string>

#include "coordinator/web/web_assets.h"

namespace shardline {
namespace {

// Scripts, styles and data from here alone; no frame, no form, no other base.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

const WebAsset* AssetOf(std::string_view path) {
  constexpr std::string_view kAssets = "/assets/";
  if (path == "/" || path == "/index.html") return FindWebAsset("index.html");
  if (!path.starts_with(kAssets)) return nullptr;
  return FindWebAsset(path.substr(kAssets.size()));
}

}  // namespace

std::optional<HttpResponse> PageResponse(const HttpRequest& request) {
  const WebAsset* asset = AssetOf(request.path);
  if (asset == nullptr) return std::nullopt;
  HttpResponse response;
  response.headers = {{"content-type", std::string(asset->type)},
                      {"etag", std::string(asset->etag)},
                      {"cache-control", "no-cache"},
                      {"content-security-policy", std::string(kPolicy)},
                      {"x-content-type-options", "nosniff"},
                      {"referrer-policy", "no-referrer"},
                      {"cross-origin-opener-policy", "same-origin"},
                      {"cross-origin-resource-policy", "same-origin"}};
  const std::string_view known = request.Header("if-none-match");
  if (known.find(asset->etag) != std::string_view::npos) {
    response.status = 304;
    return response;
  }
  response.body = std::string(asset->bytes);
  return response;
}

}  // namespace shardline
