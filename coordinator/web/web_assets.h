#pragma once

// The web page: its files, as they were when the program was built. Immutable, any thread.

#include <span>
#include <string_view>

namespace shardline {

struct WebAsset {
  std::string_view name;  // "index.html" is served at "/", every other file at "/assets/<name>".
  std::string_view type;  // Its Content-Type.
  std::string_view etag;  // Quoted, of the content: with `Cache-Control: no-cache` a reload costs
                          // a 304 a file, and never mixes the files of two versions.
  std::string_view bytes;
};

// By name.
std::span<const WebAsset> WebAssets();

// nullptr: there is none. Nothing but the names of WebAssets() is ever found.
const WebAsset* FindWebAsset(std::string_view name);

}  // namespace shardline
