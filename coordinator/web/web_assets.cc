#include "coordinator/web/web_assets.h"

#include <algorithm>

namespace shardline {

const WebAsset* FindWebAsset(std::string_view name) {
  const std::span<const WebAsset> assets = WebAssets();
  const auto found = std::find_if(assets.begin(), assets.end(),
                                  [name](const WebAsset& asset) { return asset.name == name; });
  return found == assets.end() ? nullptr : &*found;
}

}  // namespace shardline
