#include "coordinator/gateway/status_text.h"

#include "absl/strings/str_cat.h"
#include "coordinator/ctl/views.h"

namespace shardline {
namespace {

constexpr int kColumns = 120;

}  // namespace

std::string StatusText(const ClusterView& view, std::string_view endpoint) {
  const ViewOptions options = {.columns = kColumns};
  const v1::NodeList nodes = ToNodeList(view);
  std::string text = StatusView(ToStatus(view), nodes, std::string(endpoint), options);
  if (!view.nodes.empty()) absl::StrAppend(&text, "\n", NodeListView(nodes, options));
  const v1::ShardList shards = ToShardList(view, "");
  if (!shards.shards().empty()) {
    absl::StrAppend(&text, "\n", ShardListView(shards, ToModelList(view), options));
  }
  return text;
}

}  // namespace shardline
