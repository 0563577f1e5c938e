#pragma once

// Holds the coordinator's ledger against what the clients of a round have seen.

#include <vector>

#include "tests/e2e/chaos.h"
#include "tests/e2e/chaos_client.h"
#include "tests/e2e/cluster.h"

namespace shardline::testing {

// Adds to `report.violations` what does not fit, and counts the records. REQUIRES: nothing runs
// any more, so that every attempt has its terminal record or will never have one.
void CheckLedger(Cluster& cluster, const std::vector<ClientReport>& clients, ChaosReport& report);

}  // namespace shardline::testing
