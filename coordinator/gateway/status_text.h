#pragma once

// /status.txt: what `shardctl status`, `node list` and `shard list` show, in one page for curl.

#include <string>
#include <string_view>

#include "coordinator/admin/cluster_view.h"

namespace shardline {

// `endpoint` is what the reader called us.
std::string StatusText(const ClusterView& view, std::string_view endpoint);

}  // namespace shardline
