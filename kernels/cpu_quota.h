#pragma once

// How many CPUs the control groups of a process grant it, of either version.

#include <string>
#include <string_view>

namespace shardline {

// Whole CPUs of the smallest quota on the way from the process's group to the root; at least 1.
// INT_MAX if nothing limits it. `self_cgroup` is the text of /proc/self/cgroup, `cgroup_root`
// where the hierarchies are mounted, normally /sys/fs/cgroup.
//
// Rounded down: with threads beyond the quota the group is throttled for the rest of every
// period, which costs more than the fraction of a CPU left unused.
int CgroupCpuLimit(std::string_view self_cgroup, const std::string& cgroup_root);

}  // namespace shardline
