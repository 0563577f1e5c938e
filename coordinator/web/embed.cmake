# cmake -DASSETS="a;b" -DOUT=FILE -P embed.cmake: writes WebAssets() with the bytes of these files.

set(type_html "text/html; charset=utf-8")
set(type_css "text/css; charset=utf-8")
set(type_js "text/javascript; charset=utf-8")
set(type_svg "image/svg+xml")

list(SORT ASSETS)
set(rows "")
foreach(asset IN LISTS ASSETS)
  get_filename_component(name ${asset} NAME)
  string(REGEX REPLACE ".*\\." "" ending ${name})
  if(NOT DEFINED type_${ending})
    message(FATAL_ERROR "${name}: no content type for .${ending}")
  endif()
  file(SIZE ${asset} size)
  file(SHA256 ${asset} digest)
  string(SUBSTRING ${digest} 0 24 digest)
  file(READ ${asset} bytes HEX)
  string(REGEX REPLACE "(..)" "\\\\x\\1" bytes "${bytes}")
  string(APPEND rows
    "    {\"${name}\", \"${type_${ending}}\", \"\\\"${digest}\\\"\",\n"
    "     std::string_view(\"${bytes}\", ${size})},\n")
endforeach()

file(WRITE ${OUT}.new "// Made by coordinator/web/embed.cmake.
#include \"coordinator/web/web_assets.h\"

namespace shardline {
namespace {
constexpr WebAsset kAssets[] = {
${rows}};
}  // namespace
std::span<const WebAsset> WebAssets() { return kAssets; }
}  // namespace shardline
")
file(RENAME ${OUT}.new ${OUT})
